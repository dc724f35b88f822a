//! The engine of one Linux machine.
