//! Messages that the gateway writes itself.

use bytes::{BufMut as _, BytesMut};

use crate::startup::CancelKey;

/// Appends a message, filling in its length.
pub(crate) fn message(buffer: &mut BytesMut, tag: u8, body: impl FnOnce(&mut BytesMut)) {
    buffer.put_u8(tag);
    packet(buffer, body);
}

/// Appends a packet without a type, filling in its length.
fn packet(buffer: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
    let start = buffer.len();
    buffer.put_u32(0);
    body(buffer);
    let length = (buffer.len() - start) as u32;
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

pub(crate) fn cstr(buffer: &mut BytesMut, text: &str) {
    // A NUL would end the text early and shift whatever follows.
    buffer.extend(text.bytes().filter(|byte| *byte != 0));
    buffer.put_u8(0);
}

/// An error that the gateway reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReport<'a> {
    /// SQLSTATE: five characters.
    pub code: &'a str,
    /// What happened.
    pub message: &'a str,
    /// What to do next, if anything can be said.
    pub hint: Option<&'a str>,
    /// The function of PostgreSQL's source that reports the same, where drivers go by that.
    pub routine: Option<&'a str>,
}

/// ErrorResponse with severity FATAL: the connection ends with it.
pub fn fatal_error(buffer: &mut BytesMut, error: &ErrorReport<'_>) {
    error_response(buffer, "FATAL", error);
}

/// ErrorResponse with severity ERROR: the connection goes on.
pub fn error(buffer: &mut BytesMut, error: &ErrorReport<'_>) {
    error_response(buffer, "ERROR", error);
}

fn error_response(buffer: &mut BytesMut, severity: &str, error: &ErrorReport<'_>) {
    message(buffer, b'E', |body| {
        let hint = error.hint.map(|hint| (b'H', hint));
        let routine = error.routine.map(|routine| (b'R', routine));
        let fields = [(b'S', severity), (b'V', severity), (b'C', error.code), (b'M', error.message)];
        for (field, text) in fields.into_iter().chain(hint).chain(routine) {
            body.put_u8(field);
            cstr(body, text);
        }
        body.put_u8(0);
    });
}

/// NegotiateProtocolVersion: the newest minor version spoken, and the protocol
/// options that are not known.
pub fn negotiate_protocol_version(buffer: &mut BytesMut, minor_version: u16, unknown_options: &[&str]) {
    message(buffer, b'v', |body| {
        body.put_u16(3);
        body.put_u16(minor_version);
        body.put_u32(unknown_options.len() as u32);
        for option in unknown_options {
            cstr(body, option);
        }
    });
}

/// AuthenticationSASL: the mechanisms to choose from, best first.
pub fn authentication_sasl(buffer: &mut BytesMut, mechanisms: &[&str]) {
    message(buffer, b'R', |body| {
        body.put_u32(10);
        for mechanism in mechanisms {
            cstr(body, mechanism);
        }
        body.put_u8(0);
    });
}

/// AuthenticationSASLContinue.
pub fn authentication_sasl_continue(buffer: &mut BytesMut, data: &[u8]) {
    message(buffer, b'R', |body| {
        body.put_u32(11);
        body.put_slice(data);
    });
}

/// AuthenticationSASLFinal.
pub fn authentication_sasl_final(buffer: &mut BytesMut, data: &[u8]) {
    message(buffer, b'R', |body| {
        body.put_u32(12);
        body.put_slice(data);
    });
}

/// AuthenticationOk.
pub fn authentication_ok(buffer: &mut BytesMut) {
    message(buffer, b'R', |body| body.put_u32(0));
}

/// BackendKeyData.
pub fn backend_key_data(buffer: &mut BytesMut, key: &CancelKey) {
    message(buffer, b'K', |body| {
        body.put_u32(key.process_id);
        body.put_slice(&key.secret);
    });
}

/// StartupMessage of protocol 3.
pub fn startup<T: AsRef<str>>(buffer: &mut BytesMut, minor_version: u16, parameters: &[(T, T)]) {
    packet(buffer, |body| {
        body.put_u16(3);
        body.put_u16(minor_version);
        for (name, value) in parameters {
            cstr(body, name.as_ref());
            cstr(body, value.as_ref());
        }
        body.put_u8(0);
    });
}

/// CancelRequest.
pub fn cancel_request(buffer: &mut BytesMut, key: &CancelKey) {
    packet(buffer, |body| {
        body.put_u16(1234);
        body.put_u16(5678);
        body.put_u32(key.process_id);
        body.put_slice(&key.secret);
    });
}

/// SASLInitialResponse.
pub fn sasl_initial_response(buffer: &mut BytesMut, mechanism: &str, data: &[u8]) {
    message(buffer, b'p', |body| {
        cstr(body, mechanism);
        body.put_u32(data.len() as u32);
        body.put_slice(data);
    });
}

/// SASLResponse.
pub fn sasl_response(buffer: &mut BytesMut, data: &[u8]) {
    message(buffer, b'p', |body| body.put_slice(data));
}

/// A message that begins with these parts, and of which `more` bytes follow that
/// are not written here.
pub fn begin(buffer: &mut BytesMut, tag: u8, parts: &[&[u8]], more: usize) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    buffer.put_u8(tag);
    buffer.put_u32((4 + length + more) as u32);
    for part in parts {
        buffer.put_slice(part);
    }
}

/// A message without a body: ParseComplete, CloseComplete.
pub fn empty(buffer: &mut BytesMut, tag: u8) {
    begin(buffer, tag, &[], 0);
}

/// Query.
pub fn query(buffer: &mut BytesMut, sql: &str) {
    message(buffer, b'Q', |body| cstr(body, sql));
}

/// ParameterStatus.
pub fn parameter_status(buffer: &mut BytesMut, name: &[u8], value: &[u8]) {
    begin(buffer, b'S', &[name, b"\0", value, b"\0"], 0);
}

/// ReadyForQuery, outside of a transaction.
pub fn ready_for_query(buffer: &mut BytesMut) {
    begin(buffer, b'Z', &[b"I"], 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_severity_code_message_and_hint() {
        let mut buffer = BytesMut::new();
        let error = ErrorReport { code: "08004", message: "no\0pe", hint: Some("do so"), routine: None };
        fatal_error(&mut buffer, &error);
        assert_eq!(&buffer[..], b"E\0\0\0\x27SFATAL\0VFATAL\0C08004\0Mnope\0Hdo so\0\0".as_slice());
    }

    #[test]
    fn negotiation_names_the_options_that_are_unknown() {
        let mut buffer = BytesMut::new();
        negotiate_protocol_version(&mut buffer, 2, &["_pq_.x"]);
        assert_eq!(&buffer[..], b"v\0\0\0\x13\0\x03\0\x02\0\0\0\x01_pq_.x\0".as_slice());
    }
}
