//! Which entries are wanted.

use std::collections::BTreeSet;

use regex_automata::meta::Regex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::Hir;
use serde::Serialize;

use super::automaton::automaton;
use super::entry::LogEntry;
use super::line::RawEntry;
use super::prefilter::{self, Required};

/// Largest compiled form of all regular expressions of one filter, in bytes.
const SIZE_MAX: usize = 1 << 20;
/// The same of plain texts, whose length alone decides.
const TEXTS_SIZE_MAX: usize = 16 << 20;
/// Deepest nesting in a regular expression.
const NESTING_MAX: u32 = 100;

/// How a text is looked for in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum BodyMatch {
    /// It is in the message, in whatever case.
    ContainsInAnyCase,
    /// It is in the message.
    Contains,
    /// It is a regular expression.
    Regex,
    /// It is a regular expression that does not tell cases apart.
    RegexInAnyCase,
}

impl BodyMatch {
    fn is_in_any_case(self) -> bool {
        matches!(self, Self::ContainsInAnyCase | Self::RegexInAnyCase)
    }

    fn is_regex(self) -> bool {
        matches!(self, Self::Regex | Self::RegexInAnyCase)
    }
}

/// One condition; one of its texts has to fit. One without texts fits everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum LogFilter {
    /// Ids of instances.
    Instance(Vec<String>),
    /// Names of levels.
    Level(Vec<String>),
    /// Kinds of processes.
    Process(Vec<String>),
    /// What messages say.
    Body(BodyMatch, Vec<String>),
}

/// Why a filter can't be used, in words for whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FilterError(String);

/// Conditions that all have to be met.
#[derive(Debug, Default)]
pub struct LogFilters {
    instances: Vec<Vec<String>>,
    levels: Vec<Vec<String>>,
    processes: Vec<Vec<String>>,
    bodies: Vec<Regex>,
    prefilter: Option<Regex>,
}

impl LogFilters {
    /// Makes filters ready to use.
    ///
    /// # Errors
    /// When a regular expression is wrong or too large.
    pub fn new(filters: &[LogFilter]) -> Result<Self, FilterError> {
        let mut ready = Self::default();
        let mut required: Option<Required> = None;
        for filter in filters {
            match filter {
                LogFilter::Instance(texts) => ready.instances.push(texts.clone()),
                LogFilter::Level(texts) => ready.levels.push(texts.clone()),
                LogFilter::Process(texts) => ready.processes.push(texts.clone()),
                LogFilter::Body(_, texts) if texts.is_empty() => {}
                LogFilter::Body(how, texts) => {
                    ready.bodies.push(body(*how, texts)?);
                    let found = required_by(*how, texts);
                    required = Required::better(required, found);
                }
            }
        }
        for texts in [&mut ready.instances, &mut ready.levels, &mut ready.processes] {
            texts.retain(|texts| !texts.is_empty());
        }
        let required = required.or_else(|| Required::of_levels(ready.levels.first()?));
        ready.prefilter = required.and_then(|required| required.searcher());
        Ok(ready)
    }

    /// Finds every line that can match, and others.
    pub(super) fn prefilter(&self) -> Option<&Regex> {
        self.prefilter.as_ref()
    }

    /// Whether entries of an instance can match.
    pub(super) fn wants_instance(&self, instance: &str) -> bool {
        one_of_each(&self.instances, instance)
    }

    /// The entry, if it matches.
    pub(super) fn admit(&self, raw: &RawEntry<'_>, instance: &str) -> Option<LogEntry> {
        let parts = raw.parts();
        if !one_of_each(&self.levels, parts.level().as_str()) {
            return None;
        }
        if !self.processes.is_empty() && !one_of_each(&self.processes, &parts.process()) {
            return None;
        }
        let text = parts.text();
        let fits = self.bodies.iter().all(|body| body.is_match(&text));
        fits.then(|| parts.entry(raw.timestamp_ms, instance, text))
    }
}

fn one_of_each(wanted: &[Vec<String>], found: &str) -> bool {
    wanted.iter().all(|texts| texts.iter().any(|text| text == found))
}

fn body(how: BodyMatch, texts: &[String]) -> Result<Regex, FilterError> {
    let texts: BTreeSet<_> = texts.iter().collect();
    let parsed = texts.into_iter().map(|text| parse(how, text, how.is_in_any_case()));
    let parsed = parsed.collect::<Result<Vec<_>, _>>()?;
    let size_max = if how.is_regex() { SIZE_MAX } else { TEXTS_SIZE_MAX };
    automaton(&parsed, size_max).ok_or_else(|| FilterError("regular expressions are too large".to_owned()))
}

/// The syntax of one text.
fn parse(how: BodyMatch, text: &str, is_in_any_case: bool) -> Result<Hir, FilterError> {
    let escaped = (!how.is_regex()).then(|| regex_syntax::escape(text));
    let mut parser = ParserBuilder::new().case_insensitive(is_in_any_case).nest_limit(NESTING_MAX).build();
    parser.parse(escaped.as_deref().unwrap_or(text)).map_err(|error| {
        let why = match error {
            regex_syntax::Error::Parse(error) => error.kind().to_string(),
            regex_syntax::Error::Translate(error) => error.kind().to_string(),
            _ => "it can't be understood".to_owned(),
        };
        FilterError(format!("regular expression: {why}"))
    })
}

fn required_by(how: BodyMatch, texts: &[String]) -> Option<Required> {
    // Without regard to case there are no literals; so what they are is asked
    // of the expression as it stands, and case is disregarded when searching.
    let parsed = texts.iter().map(|text| parse(how, text, false).ok());
    prefilter::required_by_all(parsed, how.is_in_any_case())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"timestamp":"2026-01-02 03:04:05.678 UTC","pid":1,"error_severity":"ERROR","message":"relation \"Straße\" does not exist","statement":"SELECT *\nFROM x","backend_type":"client backend","query_id":0}"#;

    /// Whether a line gets through, with the promise that the search of raw
    /// bytes never keeps back what matches.
    fn passes(filters: &[LogFilter]) -> bool {
        let filters = LogFilters::new(filters).expect("good filters");
        let raw = RawEntry::find(LINE.as_bytes()).expect("an entry");
        let passes = filters.wants_instance("b-1") && filters.admit(&raw, "b-1").is_some();
        let is_found = filters.prefilter().is_none_or(|prefilter| prefilter.is_match(LINE.as_bytes()));
        assert!(is_found || !passes, "found by its text and not by its bytes");
        passes
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn bodies_match_as_asked() {
        use BodyMatch::*;
        for (how, text, expected) in [
            (ContainsInAnyCase, "RELATION", true),
            (ContainsInAnyCase, "\"stra\u{df}e\" DOES", true),
            (ContainsInAnyCase, "\nstatement: select *\nfrom", true),
            (ContainsInAnyCase, "ement: sel", true),
            (ContainsInAnyCase, "statement", true),
            (ContainsInAnyCase, ": SELECT", true),
            (ContainsInAnyCase, "backend", false),
            (Contains, "RELATION", false),
            (Contains, "relation \"", true),
            (Contains, ".*", false),
            (Regex, "^relation .* not exist$", false),
            (Regex, "(?m)^relation .* not exist$", true),
            (Regex, "(?s)relation.*FROM", true),
            (Regex, r#"relation\s"[^"]+""#, true),
            (Regex, r"STATEMENT:\s+SELECT", true),
            (Regex, r"^DETAIL|x$", true),
            (Regex, "Relation", false),
            (RegexInAnyCase, "Relation|nothing", true),
            (RegexInAnyCase, "(?-i)Relation", false),
            (RegexInAnyCase, r"stra\w+e", true),
        ] {
            assert_eq!(passes(&[LogFilter::Body(how, texts(&[text]))]), expected, "{how:?} {text}");
        }
    }

    #[test]
    fn one_text_of_a_filter_and_every_filter_have_to_fit() {
        let body = |these: &[&str]| LogFilter::Body(BodyMatch::Contains, texts(these));
        assert!(passes(&[]));
        assert!(passes(&[body(&["nowhere", "relation"]), LogFilter::Level(texts(&["warning", "error"]))]));
        assert!(!passes(&[body(&["relation"]), body(&["nowhere"])]));
        assert!(!passes(&[LogFilter::Level(texts(&["info"]))]));
        assert!(!passes(&[LogFilter::Level(texts(&["ERROR"]))]));
        assert!(passes(&[LogFilter::Process(texts(&["client backend"]))]));
        assert!(!passes(&[LogFilter::Process(texts(&["client"]))]));
        assert!(!passes(&[LogFilter::Instance(texts(&["b-2"]))]));
        assert!(passes(&[LogFilter::Instance(vec![]), LogFilter::Level(vec![]), body(&[])]));
    }

    #[test]
    fn as_many_and_as_long_texts_as_may_be_are_taken() {
        let long = |letter: &str, number: usize| format!("{number:03}{}", letter.repeat(253));
        for letter in ["x", "s", "é", "ß", "語"] {
            let many = (0..100).map(|number| long(letter, number)).collect();
            assert!(!passes(&[LogFilter::Body(BodyMatch::ContainsInAnyCase, many)]), "{letter}");
        }
    }

    #[test]
    fn a_bad_regular_expression_is_explained() {
        for (text, why) in [
            ("(", "regular expression: unclosed group"),
            ("a)|(b", "regular expression: unopened group"),
            (
                "(?=x)",
                "regular expression: look-around, including look-ahead and look-behind, is not supported",
            ),
            (r"(x)\1", "regular expression: backreferences are not supported"),
            (r"\w{1000}{1000}", "regular expressions are too large"),
        ] {
            let filter = LogFilter::Body(BodyMatch::Regex, texts(&["fine", text]));
            let error = LogFilters::new(&[filter]).expect_err("refused");
            assert_eq!(error.to_string(), why, "{text}");
        }
    }
}
