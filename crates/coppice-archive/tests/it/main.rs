//! A store in a directory, from the outside.

mod bases;
mod s3;
mod stores;
mod support;
