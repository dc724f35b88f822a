//! What texts and regular expressions are searched for with.

use regex_automata::meta::{self, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_syntax::hir::Hir;

/// Largest form, in bytes, of expressions that need no looking back.
const ONE_PASS_SIZE_MAX: usize = 1 << 20;

/// One automaton for several expressions, unless it would take more bytes than
/// `size_max`.
pub(super) fn automaton(expressions: &[Hir], size_max: usize) -> Option<Regex> {
    let config = meta::Config::new()
        .nfa_size_limit(Some(size_max))
        .onepass_size_limit(Some(ONE_PASS_SIZE_MAX))
        .which_captures(WhichCaptures::Implicit);
    meta::Builder::new().configure(config).build_many_from_hir(expressions).ok()
}
