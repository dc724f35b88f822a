//! SQL over HTTP and its gateway in this process, before a real server.

mod branch;
mod corners;
mod limits;
mod results;
mod websocket;
