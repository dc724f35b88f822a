//! What the walk of a log finds, in logs that are made here and in those of real servers.

mod made;
mod real;
