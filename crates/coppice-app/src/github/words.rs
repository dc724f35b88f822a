//! What is told at GitHub of a pull request's branch. Whoever may read the repository reads it, so there is no
//! secret in it, and nothing that only members of the organization know.

use coppice_core::ErrorCode;
use coppice_core::github::preview_name;

/// What is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It accepts connections.
    Ready,
    /// It can't be brought up.
    Failed,
    /// It can't be made, and by which kind of error.
    Refused(ErrorCode),
    /// It was deleted.
    Deleted,
}

/// The same in words.
pub(super) struct Words {
    /// In a line.
    pub(super) title: String,
    /// In Markdown.
    pub(super) text: String,
    /// How a check has ended that says so.
    pub(super) conclusion: &'static str,
}

/// Why there is no branch, for whoever reads the repository: nothing of what the organization has or
/// what it was told.
fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::BranchLimitReached => "the project has as many branches as it may",
        ErrorCode::BudgetReached => "a budget is used up",
        ErrorCode::OrganizationDisabled => "the organization is disabled",
        _ => "it is refused for now",
    }
}

impl News {
    /// The text by which it is known whether it was told.
    pub(super) fn mark(&self) -> String {
        match self {
            Self::Ready => "ready".to_owned(),
            Self::Failed => "failed".to_owned(),
            Self::Refused(code) => format!("refused: {}", code.as_str()),
            Self::Deleted => "deleted".to_owned(),
        }
    }

    /// How a deployment is of which that is said; none where there is nothing to lead to.
    pub(super) fn deployment(&self) -> Option<&'static str> {
        match self {
            Self::Ready => Some("success"),
            Self::Failed => Some("failure"),
            Self::Refused(_) | Self::Deleted => None,
        }
    }

    /// In words, about the pull request of this number, whose branch is shown at `place`.
    pub(super) fn words(&self, number: i64, place: &str) -> Words {
        let name = preview_name(number);
        let (title, text, conclusion) = match self {
            Self::Ready => (
                format!("The branch {name} is ready"),
                format!("This pull request has a database of its own: the branch [`{name}`]({place})."),
                "success",
            ),
            Self::Failed => (
                format!("The branch {name} does not start"),
                format!(
                    "The database of this pull request, the branch [`{name}`]({place}), does not start. That is still being tried."
                ),
                "failure",
            ),
            Self::Refused(code) => (
                format!("There is no branch {name} yet"),
                format!(
                    "This pull request has no database of its own yet: {}. That is tried again; whoever belongs to the \
                     organization finds more [in the console]({place}).",
                    reason(*code)
                ),
                "neutral",
            ),
            Self::Deleted => (
                format!("The branch {name} was deleted"),
                format!("The database of this pull request, the branch `{name}`, was deleted."),
                "neutral",
            ),
        };
        Words { title, text, conclusion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_names_the_branch_and_leads_to_it() {
        let words = News::Ready.words(7, "https://db.example.com/console/x");
        assert!(words.text.contains("[`pr-7`](https://db.example.com/console/x)"), "{}", words.text);
        let refused = News::Refused(ErrorCode::BranchLimitReached);
        assert!(refused.words(7, "").text.contains("as many branches as it may. That is tried again"));
        assert_ne!(refused.mark(), News::Refused(ErrorCode::BudgetReached).mark());
    }
}
