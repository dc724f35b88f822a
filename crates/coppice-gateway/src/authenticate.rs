//! Stage: who the client is.
//!
//! Every client gets the same exchange. For a role or a branch that does not
//! exist it is held against a made-up verifier that no password fits, so the
//! answer is the same as for a wrong password, and comes at the same time.

use std::time::Duration;

use bytes::Bytes;
use coppice_engine::RoleVerifier;
use coppice_pgwire::scram::{ClientKey, ScramChallenge, ScramServer, Verifier};
use coppice_pgwire::{backend, encode};
use tokio::time::{Instant, sleep_until};

use crate::connection::{Connection, Duplex};
use crate::destination::Destination;
use crate::refusal::{End, Refusal};

/// Longest answer of a client that signs in.
const ANSWER_LENGTH_MAX: usize = 10_000;
/// The challenge is sent at the end of a step of this length after the client
/// was asked to sign in. As much is looked up for a name that does not exist
/// as for one that does; what it takes still differs by less than a
/// millisecond, and the step hides that. The client's own answer is on its way
/// meanwhile.
const ANSWER_STEP: Duration = Duration::from_millis(4);

/// What a client has proved.
pub(crate) struct ProvenRole {
    pub(crate) client_key: ClientKey,
    /// What the key was checked against.
    pub(crate) verifier: Verifier,
}

/// The verifier that `role` has, or one that looks like it.
pub(crate) fn verifier(
    found: Option<RoleVerifier>,
    destination: &Destination,
    fake_salt_secret: &[u8; 32],
) -> Verifier {
    let fake = || {
        let name = format!("{}\0{}", destination.branch_name, destination.role);
        Verifier::fake(fake_salt_secret, &name)
    };
    match found {
        Some(RoleVerifier::Scram(text)) => Verifier::parse(&text).unwrap_or_else(|| {
            tracing::warn!(branch = destination.branch_name, "the verifier of a role can't be read");
            fake()
        }),
        Some(RoleVerifier::Md5) => {
            // To say so to the client would tell that the role exists.
            tracing::info!(
                branch = destination.branch_name,
                "a role has an MD5 password and can't sign in; set it again with password_encryption = scram-sha-256"
            );
            fake()
        }
        Some(RoleVerifier::NoPassword) | None => fake(),
    }
}

/// Asks for a sign-in by SCRAM, before anything is known of branch and role.
pub(crate) async fn offer<S: Duplex>(
    client: &mut Connection<S>,
    certificate_digest: Option<&[u8]>,
) -> Result<(), End> {
    let mechanisms = ScramServer::mechanisms(certificate_digest.is_some());
    encode::authentication_sasl(&mut client.outgoing, mechanisms);
    Ok(client.flush().await?)
}

/// Answers the client's first message, at a moment that does not tell how long
/// it took since `asked` to find the verifier.
pub(crate) async fn challenge<S: Duplex>(
    client: &mut Connection<S>,
    user_as_sent: &str,
    scram: ScramServer,
    asked: Instant,
) -> Result<ScramChallenge, End> {
    let first = backend::sasl_initial_response(client.read_frame(ANSWER_LENGTH_MAX).await?)?;
    let challenge = scram.challenge(&first.mechanism, &first.data);
    let (challenge, scram) = challenge.map_err(|error| Refusal::scram(error, user_as_sent))?;
    encode::authentication_sasl_continue(&mut client.outgoing, challenge.as_bytes());
    sleep_until(asked + next_step(asked.elapsed())).await;
    client.flush().await?;
    Ok(scram)
}

/// The end of the step of time that is going on.
fn next_step(elapsed: Duration) -> Duration {
    let steps = elapsed.as_micros() / ANSWER_STEP.as_micros() + 1;
    ANSWER_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
}

pub(crate) async fn read_proof<S: Duplex>(client: &mut Connection<S>) -> Result<Bytes, End> {
    Ok(backend::sasl_response(client.read_frame(ANSWER_LENGTH_MAX).await?)?)
}

/// Writes the end of the exchange; it is left to be sent.
pub(crate) fn accept<S>(client: &mut Connection<S>, server_final: &str) {
    encode::authentication_sasl_final(&mut client.outgoing, server_final.as_bytes());
    encode::authentication_ok(&mut client.outgoing);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_at_the_end_of_a_step() {
        for (elapsed, expected) in
            [(0, 4000), (300, 4000), (900, 4000), (3999, 4000), (4000, 8000), (9000, 12_000)]
        {
            assert_eq!(next_step(Duration::from_micros(elapsed)), Duration::from_micros(expected));
        }
    }
}
