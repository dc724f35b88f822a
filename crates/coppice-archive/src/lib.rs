//! What is kept away from the machine: bases of volumes and the records of the
//! metastore, in a *store*: a bucket, or a directory.
//!
//! **Owns** the store's layout and the format of everything in it, who may write
//! there, and the keys it is encrypted with.
//! **Must not know** what a volume is to PostgreSQL, nor how its files are opened.
//! **Start reading** at [`Archive`], then `write.rs` and `read.rs`.
//!
//! | object | what |
//! |---|---|
//! | `coppice.json` | which format, whose store, and a proof of the key; the only thing in clear |
//! | `owner/<n>-<random>` | one for each process that took the store over; the greatest may write |
//! | `bases/<volume>/<time>-<random>` | the manifest of a base; without it there is no base |
//! | `wal/<volume>/<time>-<start>-<end>` | a piece of a write-ahead log |
//! | `packs/<random>` | blocks of files; each pack has a key of its own |
//! | `records/<time>-<random>` | an export of the metastore |
//!
//! A base is a list of files, each a list of blocks of 64 KiB. A block that an
//! earlier base has is named and not written again. Blocks are compressed, then
//! encrypted, in packs of about 32 MiB; a manifest is written after all of them.
//!
//! `barman.rs` writes something else: a backup for servers that are not ours.

mod archive;
mod barman;
mod bounded;
mod connection;
mod directory;
mod error;
mod manifest;
mod place;
mod presence;
mod read;
mod records;
mod seal;
mod sweep;
mod times;
mod wal;
mod whole;
mod write;

pub use archive::{Archive, BaseName};
pub use barman::{BarmanBackup, BarmanServer, BarmanUpload, LogPlace};
pub use bounded::BoundedConnector;
pub use connection::Connection;
pub use error::{ArchiveError, Result};
pub use manifest::{BaseFacts, Manifest};
/// Why a bucket or directory did not do what it was asked.
pub use object_store::Error as StoreFailure;
pub use place::StorePlace;
pub use read::Target;
pub use records::{Records, RecordsName};
pub use seal::ArchiveKey;
pub use wal::{LogPiece, PIECE_BYTES_MAX};
pub use write::{BaseWriter, Written};
