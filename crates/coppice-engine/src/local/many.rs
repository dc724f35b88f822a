//! What a server says there is many of, said in one line.

/// Of what is told; a server that lies may say anything.
const LENGTH_MAX: usize = 300;

/// How many there were, and what the first was.
#[derive(Debug, Default)]
pub(super) struct Many {
    count: usize,
    first: String,
}

impl Many {
    /// One more. What it is is asked only of the first.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = what().chars().take(LENGTH_MAX).collect();
        }
        self.count += 1;
    }

    /// How many, and the first; none when there were none.
    pub(super) fn told(&self) -> Option<String> {
        match self.count {
            0 => None,
            1 => Some(self.first.clone()),
            count => Some(format!("{} (the first of {count})", self.first)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_is_told_and_how_many_there_are() {
        let mut many = Many::default();
        assert_eq!(many.told(), None);
        many.note(|| "one".to_owned());
        assert_eq!(many.told().expect("there is one"), "one");
        for _ in 0..9999 {
            many.note(|| unreachable!("it is not told"));
        }
        assert_eq!(many.told().expect("there are many"), "one (the first of 10000)");
        let mut long = Many::default();
        long.note(|| "x".repeat(1 << 20));
        assert_eq!(long.told().expect("there is one").len(), LENGTH_MAX);
    }
}
