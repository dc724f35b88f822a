//! Addresses that mail can be sent to.

/// Longest address (RFC 5321, section 4.5.3.1.3, without its brackets).
pub const LENGTH_MAX: usize = 254;

/// An address as it is compared with others: ASCII letters in lower case. Other
/// letters stay as they are: to fold them would make addresses of two people
/// one, such as those with a Turkish dotted I and with an i.
pub fn folded(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

/// An address in lower case, or none when the text is not one that mail
/// reaches anywhere: ASCII, and a domain with at least one dot.
pub fn normalised(text: &str) -> Option<String> {
    let text = text.trim();
    let (local, domain) = text.rsplit_once('@')?;
    let is_usable = text.len() <= LENGTH_MAX && is_local_part(local) && is_domain(domain);
    is_usable.then(|| folded(text))
}

/// The dot-atom of RFC 5322, section 3.2.3; quoted ones are used by nobody.
fn is_local_part(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-".contains(&byte);
    text.len() <= 64 && text.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_allowed))
}

fn is_domain(text: &str) -> bool {
    let labels: Vec<_> = text.split('.').collect();
    let is_label = |label: &&str| {
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
            && bytes.first() != Some(&b'-')
            && bytes.last() != Some(&b'-')
    };
    let is_top = |label: &&str| label.len() >= 2 && label.bytes().all(|byte| byte.is_ascii_alphabetic());
    // A name of another script ends in letters and digits: xn--p1ai.
    let is_foreign = |label: &&str| label.to_ascii_lowercase().starts_with("xn--");
    labels.len() >= 2
        && labels.iter().all(is_label)
        && labels.last().is_some_and(|label| is_top(label) || is_foreign(label))
        // Not every such label stands for a name in another script (RFC 5891, section 5.4).
        && (!labels.iter().any(is_foreign) || idna::domain_to_unicode(text).1.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_in_lower_case() {
        for (text, expected) in [
            ("Ada@Example.com", "ada@example.com"),
            (" ada+x@example.co.uk ", "ada+x@example.co.uk"),
            ("o'brien@a-b.example", "o'brien@a-b.example"),
            ("a@xn--e1afmkfd.xn--p1ai", "a@xn--e1afmkfd.xn--p1ai"),
        ] {
            assert_eq!(normalised(text).as_deref(), Some(expected));
        }
    }

    #[test]
    fn no_other_letter_becomes_one_of_ascii() {
        assert_eq!(folded(" Ada@Localhost "), "ada@localhost");
        for text in ["adm\u{130}n@example.com", "mar\u{212a}@example.com", "\u{c9}@example.com"] {
            assert_eq!(folded(text), text);
            assert_eq!(normalised(text), None);
        }
    }

    #[test]
    fn what_no_mail_reaches_is_no_address() {
        let long = format!("{}@example.com", "a".repeat(65));
        let longer = format!("a@{}.com", "b.".repeat(130));
        for text in [
            "",
            "@",
            "ada",
            "ada@",
            "@example.com",
            "ada@localhost",
            "a b@example.com",
            "a@b@example.com\n",
            ".a@example.com",
            "a.@example.com",
            "a..b@example.com",
            "a@-b.com",
            "a@b-.com",
            "a@b..com",
            "a@b.c",
            "a@b.c1",
            "a@example.xn--g",
            "a@xn--0.example.com",
            "\u{e9}@example.com",
            "a@example.com\r\nBcc: b@example.com",
            "<a@example.com>",
            &long,
            &longer,
        ] {
            assert_eq!(normalised(text), None, "{text:?}");
        }
    }
}
