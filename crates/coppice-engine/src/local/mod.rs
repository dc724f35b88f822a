//! The engine of one Linux machine.

pub mod installation;
pub mod layout;
pub mod volumes;
