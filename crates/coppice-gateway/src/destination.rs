//! Stage: which branch a client means, as whom, and which database.
//!
//! The branch is named by the TLS server name, else by `endpoint=` or
//! `branch=` among the startup options, else by a suffix of the user name. Its
//! endpoint stands after the last `-` of the name. Whatever is only for us is
//! cut off before the rest is passed on.

use std::net::IpAddr;

use coppice_core::BranchId;
use coppice_engine::ROLE_LENGTH_MAX;

use crate::negotiate::Tls;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::replication::Replication;
use coppice_pgwire::sqlstate;

/// Where a client wants to go.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The branch as named.
    pub(crate) branch_name: String,
    /// None when no branch can have that name, or no role the role's.
    pub(crate) branch: Option<BranchId>,
    /// The user name as it was sent, for messages.
    pub(crate) user_as_sent: String,
    /// The role.
    pub(crate) role: String,
    /// Whether sessions are shared: the client has one while it needs one.
    pub(crate) is_pooled: bool,
    /// Whether a replica serves it.
    pub(crate) reads_only: bool,
    /// Whether it is a session, or receives changes.
    pub(crate) replication: Replication,
    /// What the server gets: user, database, and the rest as it was sent.
    pub(crate) parameters: Vec<(String, String)>,
}

impl Destination {
    /// Reads the startup parameters of a client, `server_name` being the one
    /// of its TLS handshake. `is_pooled` is for one that says nothing about it.
    pub(crate) fn find(
        parameters: Vec<(String, String)>,
        server_name: Option<&str>,
        domain: Option<&str>,
        is_pooled: bool,
    ) -> Result<Self, Refusal> {
        let Parameters { user, database, options, replication, others } = Parameters::sort(parameters)?;
        let (named_by_option, options) = options.as_deref().map(take_branch).unwrap_or_default();
        let (role, named_by_user) = cut_branch(&user);
        let named = server_name
            .and_then(|name| label_in_domain(name, domain?))
            .or(named_by_option)
            .or(named_by_user.map(str::to_owned))
            .ok_or_else(no_branch)?;
        let (branch_name, endpoint) = split_endpoint(&named);

        let database = database.filter(|database| *database != user).unwrap_or_else(|| role.to_owned());
        let mut parameters = vec![("user".to_owned(), role.to_owned()), ("database".to_owned(), database)];
        parameters.extend((!options.is_empty()).then(|| ("options".to_owned(), options)));
        parameters.extend(others);
        let is_pooled = endpoint.map_or(is_pooled, |endpoint| matches!(endpoint, "pooler" | "pooled_rw"));
        let reads_only = endpoint == Some("ro");
        if replication == Replication::Logical {
            if is_pooled || reads_only {
                return Err(not_primary());
            }
            parameters.push(("replication".to_owned(), "database".to_owned()));
        }
        Ok(Self {
            // Nobody can have a longer name; a server would cut it and find somebody else.
            branch: BranchId::parse(branch_name).filter(|_| role.len() <= ROLE_LENGTH_MAX),
            branch_name: branch_name.to_owned(),
            is_pooled,
            reads_only,
            replication,
            role: role.to_owned(),
            parameters,
            user_as_sent: user,
        })
    }

    /// Has the server set what SQL there can't find out: the server sees a socket
    /// of ours. Later parameters beat earlier ones and those in `options`, so a
    /// client can't say something else, and a reset leads back to these.
    /// A session that is shared is told that nothing is known.
    pub(crate) fn tell_server(&mut self, client: IpAddr, tls: Option<&Tls>) {
        let tls = tls.filter(|_| !self.is_pooled);
        let (version, cipher) = tls.map_or(("", ""), |tls| (tls.version, tls.cipher.as_str()));
        let address = if self.is_pooled { String::new() } else { client.to_string() };
        let told = [
            ("coppice.client_address", address),
            ("coppice.tls_version", version.to_owned()),
            ("coppice.tls_cipher", cipher.to_owned()),
        ];
        self.parameters.extend(told.map(|(name, value)| (name.to_owned(), value)));
    }

    /// Whether there can be a database of that name; a server would cut a longer
    /// one and find another database. For a client that has proved who it is.
    pub(crate) fn check_database(&self) -> Result<(), Refusal> {
        let is_too_long =
            |(name, value): &(String, String)| name == "database" && value.len() > ROLE_LENGTH_MAX;
        if self.parameters.iter().any(is_too_long) { Err(Refusal::name_too_long()) } else { Ok(()) }
    }
}

/// Startup parameters, those that mean something to us told apart.
struct Parameters {
    user: String,
    database: Option<String>,
    options: Option<String>,
    replication: Replication,
    others: Vec<(String, String)>,
}

impl Parameters {
    /// Of repeated ones the last counts, as in PostgreSQL.
    fn sort(parameters: Vec<(String, String)>) -> Result<Self, Refusal> {
        let (mut user, mut database, mut options, mut others) = (None, None, None, vec![]);
        let mut replication = Replication::Off;
        for (name, value) in parameters {
            match name.as_str() {
                "user" => user = Some(value),
                "database" => database = Some(value),
                "options" => options = Some(value),
                "replication" => replication = Replication::parse(&value)?,
                _ if name.starts_with("_pq_.") => {}
                _ => others.push((name, value)),
            }
        }
        let not_empty = |text: &String| !text.is_empty();
        let user = user.filter(not_empty).ok_or_else(|| {
            Refusal::new(
                Reason::NotAllowed,
                sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
                "no PostgreSQL user name specified in startup packet",
            )
        })?;
        Ok(Self { user, database: database.filter(not_empty), options, replication, others })
    }
}

fn no_branch() -> Refusal {
    Refusal::new(
        Reason::NoBranch,
        sqlstate::SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION,
        "the connection does not say which branch it is for",
    )
        .with_hint("Append the id of the branch to the user name, as in app.<branch>, or set options to endpoint=<branch>.")
}

fn not_primary() -> Refusal {
    Refusal::new(
        Reason::Unsupported,
        sqlstate::FEATURE_NOT_SUPPORTED,
        "changes are sent by the primary, to a connection of its own",
    )
    .with_hint("Leave out -pooler or -ro after the branch.")
}

/// Splits `<branch>-<endpoint>`; a name with an unknown endpoint stays whole.
fn split_endpoint(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('-') {
        Some((branch, endpoint)) if ["rw", "r", "ro", "pooler", "pooled_rw"].contains(&endpoint) => {
            (branch, Some(endpoint))
        }
        _ => (name, None),
    }
}

/// The first label of a server name that is directly below the domain.
fn label_in_domain(server_name: &str, domain: &str) -> Option<String> {
    let name = server_name.to_ascii_lowercase();
    let label = name.strip_suffix(&domain.to_ascii_lowercase())?.strip_suffix('.')?;
    (!label.is_empty() && !label.contains('.')).then(|| label.to_owned())
}

/// Cuts the branch off a user name. Role names may have dots, so only what can
/// be a branch is one.
fn cut_branch(user: &str) -> (&str, Option<&str>) {
    match user.rsplit_once('.') {
        Some((role, branch)) if !role.is_empty() && BranchId::parse(split_endpoint(branch).0).is_some() => {
            (role, Some(branch))
        }
        _ => (user, None),
    }
}

/// Takes `endpoint=` and `branch=` out of startup options. Words are separated
/// by blanks, and a backslash escapes the next character, as in PostgreSQL.
fn take_branch(options: &str) -> (Option<String>, String) {
    let mut is_escaped = false;
    let words = options.split(|character: char| {
        let is_separator = !is_escaped && character.is_ascii_whitespace();
        is_escaped = !is_escaped && character == '\\';
        is_separator
    });
    let (mut branch, mut kept) = (None, vec![]);
    for word in words.filter(|word| !word.is_empty()) {
        let named = word.strip_prefix("endpoint=").or_else(|| word.strip_prefix("branch="));
        match named {
            // After -c it would be a setting of that name.
            Some(name) if kept.last() != Some(&"-c") => branch = Some(name.to_owned()),
            _ => kept.push(word),
        }
    }
    (branch, kept.join(" "))
}

#[cfg(test)]
#[path = "destination_tests.rs"]
mod tests;
