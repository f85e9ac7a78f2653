//! The launcher's side of sending a folder: to all hosts at once, and only what each lacks.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, info};

use super::{Event, Fleet, Member, Way};
use crate::channel::folder::{Arrived, Entry, SyncOrder, SyncReport};
use crate::channel::frame::Frame;
use crate::channel::message::{Order, Report};
use crate::error::{Error, HostProblem};
use crate::sync::{ENTRIES_AT_ONCE, Listing, PIECE, SyncProgress, folder_name};

/// How often it is told how far it is.
const PACE: Duration = Duration::from_millis(200);

/// What is sent, the same for all hosts.
struct Parcel {
    root: PathBuf,
    name: String,
    entries: Vec<Entry>,
    counts: Counts,
}

/// What has been sent and has to be, over all hosts.
#[derive(Default)]
struct Counts {
    files: AtomicU64,
    of_files: AtomicU64,
    bytes: AtomicU64,
    of_bytes: AtomicU64,
}

impl Counts {
    fn read(&self) -> SyncProgress {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        SyncProgress {
            files: of(&self.files),
            of_files: of(&self.of_files),
            bytes: of(&self.bytes),
            of_bytes: of(&self.of_bytes),
        }
    }
}

impl Fleet {
    /// Sends a folder to every host that is not this one; where it then is, for each host.
    pub(super) async fn send_folder(
        &mut self,
        root: &Path,
        on_event: &mut impl FnMut(Event),
    ) -> Result<Vec<PathBuf>, Error> {
        let mut folders = vec![root.to_owned(); self.members.len()];
        if self.members.iter().all(|one| one.host.way == Way::Here) {
            return Ok(folders);
        }
        let parcel = Arc::new(Parcel {
            root: root.to_owned(),
            name: folder_name(rustix::system::uname().nodename().to_bytes(), root),
            entries: Listing::of(root)?.entries().await?,
            counts: Counts::default(),
        });
        debug!(entries = parcel.entries.len(), "the folder is listed");
        let mut sending = JoinSet::new();
        for (index, mut member) in self.members.drain(..).enumerate() {
            let parcel = Arc::clone(&parcel);
            sending.spawn(async move {
                let sent = match member.host.way {
                    Way::Here => Ok(None),
                    Way::Ssh(_) => parcel.send(&mut member).await.map(Some),
                };
                (index, member, sent)
            });
        }
        let mut all = Vec::new();
        let mut ticks = tokio::time::interval(PACE);
        loop {
            tokio::select! {
                joined = sending.join_next() => match joined {
                    Some(one) => all.push(one.map_err(|error| Error::Internal(error.to_string()))?),
                    None => break,
                },
                _ = ticks.tick() => on_event(Event::Syncing(parcel.counts.read())),
            }
        }
        on_event(Event::Synced);
        all.sort_by_key(|(index, ..)| *index);
        let (mut problems, mut removed) = (Vec::new(), 0);
        for (index, member, sent) in all {
            self.members.push(member);
            match sent {
                Ok(Some(arrived)) => {
                    removed += arrived.removed;
                    folders[index] = PathBuf::from(arrived.folder.as_os_str());
                }
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Error::Hosts(problems));
        }
        let hosts = folders.iter().filter(|folder| *folder != root).count();
        let files = parcel.entries.iter().filter_map(Entry::size).count();
        let SyncProgress {
            files: sent, bytes, ..
        } = parcel.counts.read();
        info!(hosts, files, sent, bytes, removed, "folder sent");
        Ok(folders)
    }
}

impl Parcel {
    /// Sends to one host what it lacks.
    async fn send(&self, member: &mut Member) -> Result<Arrived, HostProblem> {
        let begin = SyncOrder::Begin {
            name: self.name.clone(),
        };
        member.link.order(Order::Sync(begin)).await;
        for entries in self.entries.chunks(ENTRIES_AT_ONCE) {
            let entries = SyncOrder::Entries(entries.to_vec());
            member.link.order(Order::Sync(entries)).await;
        }
        member.link.order(Order::Sync(SyncOrder::Compare)).await;
        let wanted = match member.next_report().await? {
            Report::Sync(SyncReport::Wanted(wanted)) => wanted,
            other => return Err(unexpected(member, other)),
        };
        debug!(host = member.host.name, files = wanted.len(), "sending");
        let frames = member.link.frames().clone();
        let last = {
            // An agent that cannot go on says so at once.
            let mut reporting = std::pin::pin!(member.next_report());
            tokio::select! {
                biased;
                report = &mut reporting => Ok(report?),
                sent = self.send_files(&wanted, &frames) => match sent {
                    Ok(()) => Ok(reporting.await?),
                    Err(problem) => Err(problem),
                },
            }
        };
        match last {
            Ok(Report::Sync(SyncReport::Done(arrived))) => Ok(arrived),
            Ok(other) => Err(unexpected(member, other)),
            Err(problem) => Err(member.problem(problem)),
        }
    }

    async fn send_files(
        &self,
        wanted: &[u32],
        frames: &mpsc::Sender<Vec<u8>>,
    ) -> Result<(), String> {
        let file = |place: &u32| {
            let entry = self.entries.get(*place as usize);
            let sized = entry.and_then(|entry| Some((*place, entry, entry.size()?)));
            sized.ok_or_else(|| format!("it asked for the file {place}, which is none"))
        };
        let wanted = wanted.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        let bytes = wanted.iter().map(|(.., size)| size).sum();
        let counts = &self.counts;
        counts.of_bytes.fetch_add(bytes, Ordering::Relaxed);
        let files = wanted.len() as u64;
        counts.of_files.fetch_add(files, Ordering::Relaxed);
        for (place, entry, size) in wanted {
            let path = self.root.join(entry.path());
            let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
            let mut source = File::open(&path).map_err(|error| wrong(&error))?;
            let mut left = size;
            let mut piece = vec![0; PIECE];
            // An empty file is one empty piece.
            loop {
                let most = left.min(PIECE as u64) as usize;
                let count = source
                    .read(&mut piece[..most])
                    .map_err(|error| wrong(&error))?;
                if count == 0 && left > 0 {
                    return Err(wrong(&"it changed while it was sent"));
                }
                let frame = Frame::FileData(place, &piece[..count]).encode();
                if frames.send(frame).await.is_err() {
                    // The agent is gone, of which its last event tells.
                    return Ok(());
                }
                left -= count as u64;
                counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
                if left == 0 {
                    break;
                }
            }
            counts.files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn unexpected(member: &Member, report: Report) -> HostProblem {
    match report {
        Report::Refused(problem) => member.problem(problem),
        other => member.problem(format!("it reported {other:?}")),
    }
}
