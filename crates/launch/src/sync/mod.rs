//! Sending a folder to the hosts of a job.
//!
//! # Expected flow
//!
//! The launcher lists the folder (`list`): files with their digests, links, and folders, without what
//! git ignores. Every host that is not this one gets the list over its agent's channel. The agent
//! (`receive`) compares it with what it has from the last time, removes what is gone, and asks for the
//! files that are new or have changed; these are sent in pieces, to all hosts at once. Ranks and the
//! setup command then run in that folder.
//!
//! # Guarantees
//!
//! - A file is there with all of its new content or with what it had before: its bytes go to another
//!   name first, are compared with the digest, and take the file's place at once.
//! - Nothing is written outside the agent's folder: a path that leads out of it is refused (`rules`),
//!   and links in it are replaced, never followed.
//! - Only what an earlier sending put there is removed (`target` keeps a list): what a program or a
//!   person made there stays, unless a file that is sent has its name.
//! - Neither side holds more than a few pieces in memory, however slow the other is.
//!
//! # Assumptions
//!
//! One sending at a time goes into a folder; others wait for its lock. Hosts whose home folder is the
//! same one, on a shared file system, therefore get it once.
//!
//! # Caveats
//!
//! A file that changes while it is sent is noticed, and the host refuses it. A sending that was cut
//! leaves some files old and some new; the next one ends it.

mod list;
mod receive;
mod rules;
mod target;

pub use list::Listing;
pub(crate) use receive::{Piece, Receiving};
pub(crate) use rules::folder_name;

/// Bytes of a file that are sent at once.
pub(crate) const PIECE: usize = 64 << 10;
/// Files, links and folders that are sent at most.
pub(crate) const MOST_ENTRIES: usize = 250_000;
/// How many of them are told at once: with the longest paths, less than the longest frame.
pub(crate) const ENTRIES_AT_ONCE: usize = 256;

/// How far the sending of a folder is, over all hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncProgress {
    /// Files that have been sent.
    pub files: u64,
    /// Files that have to be.
    pub of_files: u64,
    /// Their bytes that have been sent.
    pub bytes: u64,
    /// Their bytes.
    pub of_bytes: u64,
}
