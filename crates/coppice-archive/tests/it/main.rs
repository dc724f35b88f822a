//! A store in a directory, from the outside.

mod barman;
mod bases;
mod flips;
mod moments;
mod owners;
mod s3;
mod stores;
mod support;
mod unreliable;
