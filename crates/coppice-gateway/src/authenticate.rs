//! Stage: who the client is.
//!
//! Every client gets the same exchange. For a role or a branch that does not
//! exist it is held against a made-up verifier that no password fits, so the
//! answer is the same as for a wrong password.

use coppice_engine::RoleVerifier;
use coppice_pgwire::scram::{ClientKey, ScramServer, Verifier};
use coppice_pgwire::{backend, encode};

use crate::connection::{Connection, Duplex};
use crate::destination::Destination;
use crate::refusal::{End, Refusal};

/// Longest answer of a client that signs in.
const ANSWER_LENGTH_MAX: usize = 10_000;

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

/// Runs the exchange up to AuthenticationOk, which is left to be sent.
pub(crate) async fn authenticate<S: Duplex>(
    client: &mut Connection<S>,
    user_as_sent: &str,
    verifier: Verifier,
    certificate_digest: Option<Vec<u8>>,
) -> Result<ProvenRole, End> {
    let failed = |error| Refusal::scram(error, user_as_sent);
    let scram = ScramServer::new(verifier.clone(), certificate_digest);
    encode::authentication_sasl(&mut client.outgoing, scram.mechanisms());
    client.flush().await?;

    let first = backend::sasl_initial_response(client.read_frame(ANSWER_LENGTH_MAX).await?)?;
    let (challenge, scram) = scram.challenge(&first.mechanism, &first.data).map_err(failed)?;
    encode::authentication_sasl_continue(&mut client.outgoing, challenge.as_bytes());
    client.flush().await?;

    let proof = backend::sasl_response(client.read_frame(ANSWER_LENGTH_MAX).await?)?;
    let accepted = scram.verify(&proof).map_err(failed)?;
    encode::authentication_sasl_final(&mut client.outgoing, accepted.server_final.as_bytes());
    encode::authentication_ok(&mut client.outgoing);
    Ok(ProvenRole { client_key: accepted.client_key, verifier })
}
