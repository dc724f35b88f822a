//! What an attacker tries: a stranger at a door, a member with few rights, a
//! tenant with SQL, a tenant who became superuser or runs native code inside a
//! server. Each story ends with what the attacker did not get.

mod blocked_sessions;
mod extensions;
mod files;
mod hostile_answers;
mod hostile_sql;
mod members;
mod native;
mod native_code;
mod neighbours;
mod open_session;
mod statements;
mod strangers_gateway;
mod strangers_http;
