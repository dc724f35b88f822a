-- Hash of the browser's session in which a device was answered: what that allowed ends with it until the device has
-- come for it.
alter table device_codes add column browser_session text;
create index device_codes_browser on device_codes (browser_session);
