//! The real router, use cases and metastore, in this process and without any
//! branch's server: what the API says and refuses by itself; and SQL over HTTP
//! before a real server.
//!
//! Every answer's status is compared with the document.

mod allowed_clients;
mod asked_anew;
mod backups;
mod billing;
mod browser;
mod budgets;
mod console;
mod double;
mod engine;
mod events;
mod github;
mod http;
mod keys;
mod late;
mod logins;
mod logs;
mod marketplace;
mod orb;
mod organizations;
mod outside;
mod progress;
mod projects;
mod refusals;
mod repetitions;
mod sign_in_links;
mod sql;
mod standing;
mod stripe;
mod taken_accounts;
mod usage;
mod vercel;
mod webhooks;

use coppice_test_support::is_timestamp;
use http::{Http, shared};
