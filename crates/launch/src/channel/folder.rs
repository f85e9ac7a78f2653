//! What the launcher and an agent say when a folder is sent. The flow is told in
//! [`sync`](crate::sync).

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::message::Word;

/// What the launcher says, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SyncOrder {
    /// A folder is sent, which gets this name.
    Begin { name: String },
    /// A part of the list of what is in it: folders come before what they hold.
    Entries(Vec<Entry>),
    /// The list is complete.
    Compare,
}

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SyncReport {
    /// The files that have to be sent, by their places in the list, in this order.
    Wanted(Vec<u32>),
    /// Everything is there.
    Done(Arrived),
}

/// A folder that has been sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Arrived {
    /// Where it is.
    pub(crate) folder: Word,
    /// How many files of an earlier time were removed.
    pub(crate) removed: usize,
}

/// One thing in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its path, from the folder that is sent.
    path: Word,
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    Folder,
    Link {
        target: Word,
    },
    File {
        size: u64,
        /// In hexadecimal digits.
        digest: String,
        executable: bool,
    },
}

impl Entry {
    pub(crate) fn new(path: &Path, content: Content) -> Self {
        Self {
            path: Word::from(path.as_os_str()),
            content,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(self.path.as_os_str())
    }

    /// Its size, if it is a file.
    pub(crate) fn size(&self) -> Option<u64> {
        match self.content {
            Content::File { size, .. } => Some(size),
            Content::Folder | Content::Link { .. } => None,
        }
    }
}
