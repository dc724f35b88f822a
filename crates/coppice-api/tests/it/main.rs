//! The real router, use cases and metastore, in this process and without any
//! branch's server: what the API says and refuses by itself.
//!
//! Every answer's status is compared with the document.

mod billing;
mod console;
mod engine;
mod events;
mod http;
mod keys;
mod organizations;
mod projects;
mod sign_in_links;
mod usage;
mod webhooks;

use coppice_test_support::is_timestamp;
use http::{Http, shared};
