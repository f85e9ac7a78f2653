//! The agent's side: takes a folder in, piece by piece.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::target::{Draft, Target};
use super::{MOST_ENTRIES, rules};
use crate::channel::folder::{Arrived, Content, Entry, SyncOrder, SyncReport};
use crate::channel::frame::Frame;
use crate::channel::message::{Report, Word};

/// Pieces that may wait to be written.
const QUEUE: usize = 16;

/// What comes from the launcher.
#[derive(Debug)]
pub(crate) enum Piece {
    Order(SyncOrder),
    /// The next bytes of the file at a place in the list.
    Data(u32, Vec<u8>),
}

/// A folder that is being taken in, in a task of its own, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Receiving(mpsc::Sender<Piece>);

impl Receiving {
    /// Begins; the folder will be in `base`, and the launcher is told through `frames`.
    pub(crate) fn begin(base: PathBuf, frames: mpsc::Sender<Vec<u8>>) -> Self {
        let (sender, pieces) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut receiver = Receiver { pieces, frames };
            let report = match receiver.receive(&base).await {
                Ok(Some(arrived)) => Report::Sync(SyncReport::Done(arrived)),
                Ok(None) => return,
                Err(problem) => Report::Refused(problem),
            };
            receiver.report(report).await;
        });
        Self(sender)
    }

    /// Passes on what came; waits while the disk is slower than the channel.
    pub(crate) async fn take(&self, piece: Piece) {
        // After a problem, of which the launcher has been told, nothing is taken any more.
        let _ = self.0.send(piece).await;
    }
}

struct Receiver {
    pieces: mpsc::Receiver<Piece>,
    frames: mpsc::Sender<Vec<u8>>,
}

impl Receiver {
    /// Where the folder is once all of it is there; nothing if the launcher is gone before.
    async fn receive(&mut self, base: &Path) -> Result<Option<Arrived>, String> {
        let Some((name, entries)) = self.list().await? else {
            return Ok(None);
        };
        let target = Target::open(base, &name).await?;
        let (wanted, removed) = target.arrange(&entries).await?;
        self.report(Report::Sync(SyncReport::Wanted(wanted.clone())))
            .await;
        for place in wanted {
            let path = target.path().join(entries[place as usize].path());
            let Content::File {
                size,
                digest,
                executable,
            } = &entries[place as usize].content
            else {
                unreachable!("only files are wanted");
            };
            let Some(draft) = self.file(&target, place, *size, &path).await? else {
                return Ok(None);
            };
            draft.settle(&path, digest, *executable)?;
        }
        target.finish(&entries)?;
        Ok(Some(Arrived {
            folder: Word::from(target.path().as_os_str()),
            removed,
        }))
    }

    /// The name of the folder and what is in it; nothing if the launcher is gone.
    async fn list(&mut self) -> Result<Option<(String, Vec<Entry>)>, String> {
        let mut name = String::new();
        let mut list = List::default();
        while let Some(piece) = self.pieces.recv().await {
            match piece {
                Piece::Order(SyncOrder::Begin { name: given }) => name = given,
                Piece::Order(SyncOrder::Entries(entries)) => {
                    for entry in entries {
                        list.add(entry)?;
                    }
                }
                Piece::Order(SyncOrder::Compare) => return Ok(Some((name, list.entries))),
                Piece::Data(..) => return Err(unasked()),
            }
        }
        Ok(None)
    }

    /// All of one file; nothing if the launcher is gone.
    async fn file(
        &mut self,
        target: &Target,
        place: u32,
        size: u64,
        path: &Path,
    ) -> Result<Option<Draft>, String> {
        let mut draft = target.draft()?;
        while let Some(piece) = self.pieces.recv().await {
            match piece {
                Piece::Data(of, bytes)
                    if of == place && bytes.len() as u64 <= size - draft.length() =>
                {
                    draft
                        .write(&bytes)
                        .map_err(|error| format!("{}: {error}", path.display()))?;
                }
                Piece::Data(..) | Piece::Order(_) => return Err(unasked()),
            }
            if draft.length() == size {
                return Ok(Some(draft));
            }
        }
        Ok(None)
    }

    async fn report(&self, report: Report) {
        // Nobody receives when the launcher is gone.
        let _ = self.frames.send(Frame::Report(report).encode()).await;
    }
}

/// What the launcher tells of a folder, believed as far as it keeps to the rules.
#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    known: HashSet<PathBuf>,
    folders: HashSet<PathBuf>,
}

impl List {
    fn add(&mut self, entry: Entry) -> Result<(), String> {
        let path = entry.path();
        let refused = |why: &str| Err(format!("{} is refused: {why}", path.display()));
        if self.entries.len() == MOST_ENTRIES {
            return refused("there are too many files");
        }
        if !rules::stays_inside(path) {
            return refused("its path leads out of the folder");
        }
        let above = path.parent().unwrap_or(Path::new(""));
        if !above.as_os_str().is_empty() && !self.folders.contains(above) {
            return refused("it is in no folder that was told before it");
        }
        if !self.known.insert(path.to_owned()) {
            return refused("it was told twice");
        }
        match &entry.content {
            Content::Folder => {
                self.folders.insert(path.to_owned());
            }
            Content::Link { target } => {
                if !rules::leads_inside(path, Path::new(target.as_os_str())) {
                    return refused("the link leads out of the folder");
                }
            }
            Content::File { .. } => {}
        }
        self.entries.push(entry);
        Ok(())
    }
}

fn unasked() -> String {
    "the launcher sent what was not asked for".to_owned()
}

#[cfg(test)]
mod tests;
