//! Named places where a test can make the process fail.
//!
//! `COPPICE_FAILPOINTS="volume.clone=abort,server.spawn=2*error"` aborts at the
//! first place, and returns an error from the second one the first two times it
//! is reached. `COPPICE_FAILPOINT_TRACE=<file>` appends the name of every place
//! that is reached, so that a test can visit all of them. Builds without debug
//! assertions contain none of this.

#[cfg(debug_assertions)]
mod active {
    use std::collections::HashMap;
    use std::io::Write;
    use std::sync::{Mutex, OnceLock};

    #[derive(Clone, Copy)]
    enum Action {
        Abort,
        Error,
    }

    struct Rule {
        action: Action,
        remaining: u32,
    }

    static RULES: OnceLock<Mutex<HashMap<String, Rule>>> = OnceLock::new();

    fn rules() -> HashMap<String, Rule> {
        let text = std::env::var("COPPICE_FAILPOINTS").unwrap_or_default();
        let mut rules = HashMap::new();
        for item in text.split(',').filter(|item| !item.is_empty()) {
            let (name, action) = item.split_once('=').unwrap_or((item, "abort"));
            let (count, action) = action.split_once('*').unwrap_or(("1", action));
            let action = if action == "error" { Action::Error } else { Action::Abort };
            rules.insert(name.to_owned(), Rule { action, remaining: count.parse().unwrap_or(1) });
        }
        rules
    }

    pub(super) fn reach(name: &str) -> bool {
        if let Ok(path) = std::env::var("COPPICE_FAILPOINT_TRACE")
            && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
        {
            let _ = writeln!(file, "{name}");
        }
        let Ok(mut rules) = RULES.get_or_init(|| Mutex::new(rules())).lock() else { return false };
        let Some(rule) = rules.get_mut(name) else { return false };
        if rule.remaining == 0 {
            return false;
        }
        rule.remaining -= 1;
        match rule.action {
            Action::Abort => std::process::abort(),
            Action::Error => true,
        }
    }
}

/// Called by [`failpoint!`]; true means: fail here.
pub fn reach(name: &str) -> bool {
    #[cfg(debug_assertions)]
    return active::reach(name);
    #[cfg(not(debug_assertions))]
    {
        let _ = name;
        false
    }
}

/// Marks a place where a test can abort the process or make the enclosing
/// function return `$error`. With one argument only aborting is possible.
#[macro_export]
macro_rules! failpoint {
    ($name:literal) => {
        let _ = $crate::reach($name);
    };
    ($name:literal, $error:expr) => {
        if $crate::reach($name) {
            return Err($error);
        }
    };
}
