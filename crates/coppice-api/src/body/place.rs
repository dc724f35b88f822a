//! Where in a request something is wrong.

use std::fmt::{self, Display};

use coppice_core::{Error, ErrorCode};

/// A place in what was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'a> {
    /// The whole body.
    Body,
    /// The whole query.
    Query,
    /// A field of an object, or a parameter of the query.
    Field(&'a Place<'a>, &'a str),
    /// An item of an array.
    Item(&'a Place<'a>, usize),
}

impl Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => f.write_str("request body"),
            Self::Query => f.write_str("query"),
            Self::Field(Self::Body | Self::Query, name) => f.write_str(name),
            Self::Field(outer, name) => write!(f, "{outer}.{name}"),
            Self::Item(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

impl Place<'_> {
    fn is_in_query(&self) -> bool {
        match self {
            Self::Body => false,
            Self::Query => true,
            Self::Field(outer, _) | Self::Item(outer, _) => outer.is_in_query(),
        }
    }

    /// The complaint that something wrong is here.
    pub(crate) fn invalid(&self, why: impl Display) -> Error {
        match self.is_in_query() {
            true => Error::invalid_query(&self.to_string(), why),
            false => Error::invalid_field(&self.to_string(), why),
        }
    }

    /// The complaint that nothing is here.
    pub(crate) fn missing(&self) -> Error {
        match self.is_in_query() {
            true => {
                Error::invalid(ErrorCode::MissingParameter, format!("query parameter {self} is required"))
            }
            false => Error::invalid(ErrorCode::MissingField, format!("{self} is required")),
        }
    }

    /// The complaint that too much is here.
    pub(crate) fn too_many(&self, count_max: usize) -> Error {
        Error::invalid(ErrorCode::TooManyItems, format!("{self} accepts at most {count_max} items"))
    }
}

/// The place that a complaint names, and what is wrong there.
pub(crate) fn named_in(error: &Error) -> Option<(String, String)> {
    let said = error.to_string();
    let pair = match error.code() {
        ErrorCode::InvalidField => said.strip_prefix("invalid ")?.split_once(": ")?,
        ErrorCode::MissingField => (said.strip_suffix(" is required")?, "is required"),
        ErrorCode::TooManyItems => {
            let place = said.split_once(" accepts at most ")?.0;
            (place, said.strip_prefix(place)?.trim_start())
        }
        ErrorCode::InvalidPathParameter => (said.strip_prefix("invalid path parameter ")?, "is invalid"),
        _ => return None,
    };
    Some((pair.0.to_owned(), pair.1.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_tells_its_place_and_what_is_wrong_there() {
        let place = Place::Field(&Place::Field(&Place::Body, "credentials"), "access_token");
        for (complaint, why) in [
            (place.invalid("must be a string"), "must be a string"),
            (place.missing(), "is required"),
            (place.too_many(7), "accepts at most 7 items"),
        ] {
            let expected = ("credentials.access_token".to_owned(), why.to_owned());
            assert_eq!(named_in(&complaint), Some(expected));
        }
        assert_eq!(named_in(&Error::internal("x")), None);
    }
}
