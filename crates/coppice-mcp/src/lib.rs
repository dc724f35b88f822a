//! The Model Context Protocol: operations of the API as tools of agents.
//!
//! **Owns** which tools there are, how they are described and how their answers
//! look to an agent, and who may come in.
//! **Must not know** the app: a tool is a request to the API, which checks it
//! like everybody else's.
//! **Start reading** at `tools.rs`, the table of tools.
//!
//! A message passes, in this order: who sends it (`guard.rs`), the protocol
//! (rmcp), the tool (`server.rs`), its request to the API (`call.rs`).
//!
//! Source: Model Context Protocol, Streamable HTTP, without sessions.

mod answer;
mod arguments;
mod call;
mod confirmation;
mod guard;
mod schema;
mod server;
mod tools;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use coppice_api::Hosts;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;

use crate::guard::Guard;
use crate::server::Server;
use crate::tools::Tools;

/// Where it is.
pub const PATH: &str = "/mcp";

/// What agents talk to: `api` are the operations, `public_url` is what they
/// were told to go to, `hosts` are the names of this site.
///
/// # Panics
/// When a tool shows what its operation does not have.
pub fn router(api: &Router, public_url: &str, hosts: Hosts) -> Router {
    let tools = Arc::new(Tools::new());
    let guard = Guard::new(api.clone(), public_url, hosts, tools.clone());
    let server = Server::new(api.clone(), tools);
    // The guard knows all names of this site, the library only a list.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let protocol =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::<NeverSessionManager>::default(), config);
    Router::new().route_service(PATH, protocol).layer(from_fn_with_state(Arc::new(guard), guard::admit))
}
