//! What the engine promises, on real file systems and with real servers.

mod storage;
mod volumes;
