//! Stories against the real executable, real PostgreSQL and real storage.

mod api;
mod crashes;
mod drivers;
mod isolation;
mod refusals;
mod setup;
mod tour;
mod unprivileged;
mod versions;
