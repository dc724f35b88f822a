//! Texts that have to be of a certain form. A schema names the form as its
//! `format`; most names are ours, and the document does not show those.

use coppice_core::backup::BackupTime;
use coppice_core::error::excerpt;
use coppice_core::labels::{KEY_RULE, is_key};
use coppice_core::name::problem;
use coppice_core::project::parse_address_range;
use coppice_core::target::is_record_id;
use coppice_core::{Error, ErrorCode, Result, budget, email};

use super::length::Length;
use super::place::Place;
use crate::time;

/// A form that a text has to have.
#[derive(Debug)]
pub(crate) struct Format {
    /// As schemas name it.
    pub(crate) name: &'static str,
    /// Whether the document shows the name: it is known to everybody.
    pub(crate) is_public: bool,
    check: Check,
}

/// How a text is checked.
#[derive(Debug)]
enum Check {
    /// It is taken as it is.
    AsIs(fn(&str, &Length, &Place<'_>) -> Result<()>),
    /// It is put right.
    Mended(fn(&str, &Length, &Place<'_>) -> Result<String>),
}

impl Format {
    /// The form with this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Checks a text, and puts it right.
    ///
    /// # Errors
    /// `invalid_field`, or what else refuses the form.
    pub(crate) fn check(&self, text: &mut String, length: &Length, place: &Place<'_>) -> Result<()> {
        match self.check {
            Check::AsIs(check) => check(text, length, place),
            Check::Mended(mend) => mend(text, length, place).map(|mended| *text = mended),
        }
    }
}

const fn ours(name: &'static str, check: Check) -> Format {
    Format { name, is_public: false, check }
}

static FORMATS: [Format; 15] = [
    // What something is called: without blanks around it, and nothing that can't be seen.
    ours("name", Check::Mended(name)),
    // A remark for people.
    ours("remark", Check::AsIs(remark)),
    // What a branch is for.
    ours("description", Check::AsIs(description)),
    // What a label is found by.
    ours("label-key", Check::AsIs(label_key)),
    // The id of a record.
    ours("id", Check::AsIs(id)),
    // The id of a record, or every one.
    ours("id-or-all", Check::AsIs(id_or_all)),
    // A scope, known or not.
    ours("scope", Check::AsIs(scope)),
    // A range of addresses.
    ours("cidr", Check::AsIs(cidr)),
    // Text that is sought in texts of the metastore.
    ours("sought", Check::AsIs(sought)),
    // How much there may be.
    ours("limit", Check::AsIs(limit)),
    // When backups are made.
    ours("backup-time", Check::AsIs(backup_time)),
    // Stands for what the app looks up, which refuses what is not there.
    ours("looked-up", Check::AsIs(|text, length, place| length.check(text, place))),
    // A time that the document describes in words.
    ours("time", Check::Mended(date_time)),
    Format { name: "date-time", is_public: true, check: Check::Mended(date_time) },
    Format { name: "email", is_public: true, check: Check::Mended(address) },
];

fn name(text: &str, length: &Length, place: &Place<'_>) -> Result<String> {
    let name = text.trim();
    remark(name, length, place).map(|()| name.to_owned())
}

fn remark(text: &str, length: &Length, place: &Place<'_>) -> Result<()> {
    length.check(text, place)?;
    problem(text).map_or(Ok(()), |why| Err(place.invalid(why)))
}

fn description(text: &str, length: &Length, place: &Place<'_>) -> Result<()> {
    let is_allowed =
        |(index, c): (usize, char)| c.is_ascii_alphanumeric() || (index > 0 && (c == '-' || c == ' '));
    match length.has_room_for(text) && text.chars().enumerate().all(is_allowed) {
        true => Ok(()),
        false => Err(place.invalid(
            "must have at most 50 letters, digits, hyphens and blanks, and begin with a letter or digit",
        )),
    }
}

fn label_key(text: &str, _: &Length, place: &Place<'_>) -> Result<()> {
    if is_key(text) { Ok(()) } else { Err(place.invalid(KEY_RULE)) }
}

fn backup_time(text: &str, _: &Length, place: &Place<'_>) -> Result<()> {
    text.parse::<BackupTime>().map(drop).map_err(|why| place.invalid(why))
}

fn id(text: &str, _: &Length, place: &Place<'_>) -> Result<()> {
    match is_record_id(text) {
        true => Ok(()),
        false => Err(place.invalid("must be an id: 1 to 64 letters, digits, - and _")),
    }
}

fn id_or_all(text: &str, _: &Length, place: &Place<'_>) -> Result<()> {
    match text == "*" || is_record_id(text) {
        true => Ok(()),
        false => Err(place.invalid("must be an id of at most 64 letters, digits, - and _, or *")),
    }
}

fn scope(text: &str, length: &Length, place: &Place<'_>) -> Result<()> {
    match length.has_room_for(text) && !text.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(place.invalid("must be a text of 1 to 64 printable characters")),
    }
}

fn cidr(text: &str, length: &Length, _: &Place<'_>) -> Result<()> {
    match length.has_room_for(text) && parse_address_range(text).is_some() {
        true => Ok(()),
        false => {
            let public = format!("invalid address range {}", excerpt(text));
            Err(Error::invalid(ErrorCode::InvalidCidr, public))
        }
    }
}

fn sought(text: &str, length: &Length, place: &Place<'_>) -> Result<()> {
    // No text of the metastore has a zero byte, so it can't be asked for one.
    match length.has_room_for(text) && !text.contains('\0') {
        true => Ok(()),
        false => Err(place.invalid(format_args!("{length}, and no zero byte"))),
    }
}

fn limit(text: &str, _: &Length, place: &Place<'_>) -> Result<()> {
    let why = "must be a text like \"20\" or \"0.50\": greater than zero, with at most 9 digits before the point and 6 \
               after it";
    budget::limit(text).map(drop).ok_or_else(|| place.invalid(why))
}

/// A time without an offset is in UTC, and says so from here on.
fn date_time(text: &str, _: &Length, place: &Place<'_>) -> Result<String> {
    let time = time::parse(text).ok_or_else(|| place.invalid(time::WHY_NONE))?;
    Ok(if text.ends_with('Z') { text.to_owned() } else { time.to_rfc3339() })
}

fn address(text: &str, _: &Length, place: &Place<'_>) -> Result<String> {
    let why = "must be an address of at most 254 characters, like ada@example.com";
    email::normalised(text).ok_or_else(|| place.invalid(why))
}
