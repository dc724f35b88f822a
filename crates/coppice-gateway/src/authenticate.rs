//! Stage: who the client is.
//!
//! Every client gets the same exchange. For a role or a branch that does not
//! exist it is held against a made-up verifier that no password fits, so the
//! answer is the same as for a wrong password, and comes at the same time.
//!
//! A copy has the salts of the roles that it inherits, so roles that don't exist
//! have the same salt on all copies of one branch, too; here and there another,
//! as a role has whose password was changed since.

use std::time::Duration;

use bytes::Bytes;
use coppice_core::BranchId;
use coppice_engine::RoleVerifier;
use coppice_pgwire::scram::{ClientKey, ScramChallenge, ScramServer, Verifier};
use coppice_pgwire::{backend, encode};
use tokio::time::{Instant, sleep_until};

use crate::connection::{Connection, Duplex};
use crate::destination::Destination;
use crate::negotiate::Client;
use crate::refusal::{End, Refusal};

/// Longest answer of a client that signs in.
const ANSWER_LENGTH_MAX: usize = 10_000;
/// The challenge is sent at the end of a step of this length after the client
/// was asked to sign in. As much is looked up for a name that does not exist
/// as for one that does; what it takes still differs by less than a
/// millisecond, and the step hides that. The client's own answer is on its way
/// meanwhile.
const ANSWER_STEP: Duration = Duration::from_millis(2);
/// One role that does not exist in so many looks on a copy as if its password
/// had been changed there.
const CHANGED_ONE_IN: u8 = 8;

/// What a client has proved.
pub(crate) struct ProvenRole {
    pub(crate) client_key: ClientKey,
    /// What the key was checked against.
    pub(crate) verifier: Verifier,
}

/// The verifier that a role has, or one that looks like it. `root` is the branch
/// that the client's is a copy of, at whatever distance, or itself.
pub(crate) fn verifier(
    found: Option<RoleVerifier>,
    destination: &Destination,
    root: Option<&BranchId>,
    fake_salt_secret: &[u8; 32],
) -> Verifier {
    let fake = || fake(destination, root, fake_salt_secret);
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

fn fake(destination: &Destination, root: Option<&BranchId>, secret: &[u8; 32]) -> Verifier {
    let on = |branch: &str| Verifier::fake(secret, &format!("{branch}\0{}", destination.role));
    let own = on(&destination.branch_name);
    // What is not there is nobody's copy.
    let inherited = root.map_or_else(|| own.clone(), |root| on(root.as_str()));
    if own.draws_one_in(CHANGED_ONE_IN) { own } else { inherited }
}

/// Asks for a sign-in by SCRAM, before anything is known of branch and role.
pub(crate) async fn offer(client: &mut Client) -> Result<(), End> {
    let mechanisms = ScramServer::mechanisms(client.digest().is_some());
    encode::authentication_sasl(&mut client.connection.outgoing, mechanisms);
    Ok(client.connection.flush().await?)
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
            [(0, 2000), (300, 2000), (900, 2000), (1999, 2000), (2000, 4000), (4500, 6000)]
        {
            assert_eq!(next_step(Duration::from_micros(elapsed)), Duration::from_micros(expected));
        }
    }

    #[test]
    fn copies_show_the_same_salt_for_most_roles_that_do_not_exist() {
        let [root, child, sibling, other] = [(); 4].map(|()| BranchId::generate());
        let salt = |branch: &BranchId, root: Option<&BranchId>, role: usize| {
            let user = ("user".to_owned(), format!("role{role}.{branch}"));
            let destination = Destination::find(vec![user], None, None, false).expect("a destination");
            let first = ScramServer::new(verifier(None, &destination, root, &[7; 32]), None);
            let (first, _) = first.challenge("SCRAM-SHA-256", b"n,,n=,r=nonce").expect("a challenge");
            first.split_once(",s=").expect("a salt").1.to_owned()
        };
        let roles = 0..400;
        let same = |one: &BranchId, two: &BranchId, root_of_two: &BranchId| {
            let is_same = |role: &usize| salt(one, Some(&root), *role) == salt(two, Some(root_of_two), *role);
            roles.clone().filter(is_same).count()
        };
        // What is inherited and unchanged is the same; what was changed is not.
        for (one, two) in [(&root, &child), (&child, &sibling)] {
            assert!((250..390).contains(&same(one, two, &root)), "{}", same(one, two, &root));
        }
        assert_eq!(same(&root, &other, &other), 0, "of another origin");
        for role in roles {
            assert_eq!(salt(&child, Some(&root), role), salt(&child, Some(&root), role));
            assert_eq!(salt(&root, Some(&root), role), salt(&root, None, role), "is there or not");
        }
    }
}
