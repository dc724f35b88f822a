//! Codes of an authenticator app (RFC 6238): six digits, SHA-1, half a minute
//! each, which is what every app can do.

use chrono::{DateTime, Utc};
use coppice_core::random;
use totp_rs::{Builder, Secret, Totp, TotpError};
use zeroize::Zeroizing;

/// Length of a secret in bytes (RFC 4226, section 4).
const SECRET_LENGTH: usize = 20;
/// Steps that a clock may be off, before and after (RFC 6238, section 5.2).
const SKEW_STEPS: u16 = 1;
/// What apps show beside the account.
const ISSUER: &str = "Coppice";

/// Makes the secret of an app, as base32.
pub fn generate() -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; SECRET_LENGTH]);
    random::fill(bytes.as_mut());
    Zeroizing::new(Secret::new_stack(*bytes).to_base32())
}

/// Not a secret that [`generate`] made.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this is no secret of an authenticator app")]
pub struct DamagedSecret;

impl From<TotpError> for DamagedSecret {
    fn from(_: TotpError) -> Self {
        Self
    }
}

fn of(secret: &str) -> Result<Builder, DamagedSecret> {
    let secret = Secret::try_from_base32(secret).map_err(|_| DamagedSecret)?;
    Ok(Builder::new().with_skew(SKEW_STEPS).with_secret(secret))
}

fn built(builder: Builder) -> Result<Totp, DamagedSecret> {
    Ok(builder.build()?)
}

/// The step whose code this is, now or a step around; none when it is no code
/// of the secret. That a step counts once is the caller's business.
///
/// # Errors
/// When the secret is none.
pub fn step_of(secret: &str, typed: &str, now: DateTime<Utc>) -> Result<Option<i64>, DamagedSecret> {
    let Some(code) = parse(typed) else { return Ok(None) };
    let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
    let step = built(of(secret)?)?.check(&code, seconds);
    Ok(step.and_then(|step| i64::try_from(step).ok()))
}

/// Reads a code as people write it: with blanks.
pub fn parse(text: &str) -> Option<String> {
    let code: String = text.chars().filter(|digit| !matches!(digit, ' ' | '-')).take(7).collect();
    (code.len() == 6 && code.bytes().all(|byte| byte.is_ascii_digit())).then_some(code)
}

/// What an app reads from a picture to know the account by, with the secret.
///
/// # Errors
/// When the secret is none.
pub fn address(secret: &str, account: &str) -> Result<Zeroizing<String>, DamagedSecret> {
    // A colon would end the name.
    let account = account.replace(':', "");
    let builder = of(secret)?.with_issuer(Some(ISSUER)).with_account_name(account);
    Ok(Zeroizing::new(built(builder)?.to_url()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The secret of RFC 6238, appendix B.
    const OF_THE_RFC: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).expect("a time")
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        // The last six of the eight digits there.
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let step = step_of(OF_THE_RFC, code, at(seconds)).expect("a secret");
            assert_eq!(step, Some(seconds / 30), "{code}");
            let spaced = format!(" {} {}", &code[..3], &code[3..]);
            assert_eq!(step_of(OF_THE_RFC, &spaced, at(seconds)).expect("a secret"), step);
        }
    }

    #[test]
    fn a_clock_may_be_off_by_one_step_and_no_more() {
        let code = "005924";
        let middle = 1_234_567_890 / 30;
        for (steps, is_good) in [(-2, false), (-1, true), (0, true), (1, true), (2, false)] {
            let found = step_of(OF_THE_RFC, code, at(1_234_567_890 + steps * 30)).expect("a secret");
            assert_eq!(found, is_good.then_some(middle), "{steps}");
        }
    }

    #[test]
    fn what_is_no_code_is_none() {
        for text in ["", "00592", "0059241", "00592a", "٠٠٥٩٢٤", "005924; x"] {
            assert_eq!(step_of(OF_THE_RFC, text, at(1_234_567_890)).expect("a secret"), None, "{text}");
        }
    }

    #[test]
    fn every_secret_is_another_and_apps_can_read_it() {
        let (a, b) = (generate(), generate());
        assert!(a != b && a.len() == 32, "160 bits");
        let address = address(&a, "ada:x@example.com").expect("a secret");
        let expected = format!("otpauth://totp/Coppice:adax%40example.com?secret={}&issuer=Coppice", *a);
        assert_eq!(*address, expected);
        assert!(step_of("not base32!", "005924", at(59)).is_err());
    }
}
