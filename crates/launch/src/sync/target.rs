//! A folder that is sent, on the disk of the host that gets it.
//!
//! Beside the folder are a lock, and a list of what was put into it: what is on no list is not ours to
//! remove. Errors are told with the path, in words for the person at the launcher.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::debug;

use super::rules;
use crate::channel::folder::{Content, Entry};
use crate::channel::message::Word;
use crate::digest::{Digester, digest_of_file};
use crate::random::random_word;

/// Between two looks at a lock that another agent holds.
const PAUSE: Duration = Duration::from_millis(50);

/// Paths in the folder, and whether each is a folder.
type Names = BTreeMap<PathBuf, bool>;

/// The folder, while its lock is held.
#[derive(Debug)]
pub(super) struct Target {
    root: PathBuf,
    /// What an earlier sending put there.
    before: Names,
    /// None where the file system knows no locks.
    _lock: Option<File>,
}

impl Target {
    /// Makes the folder in `base`, or finds it, when nobody else writes to it.
    pub(super) async fn open(base: &Path, name: &str) -> Result<Self, String> {
        if !rules::names_folder(name) {
            return Err(format!("{name:?} is no name for a folder"));
        }
        let root = base.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&root)
            .map_err(at(&root))?;
        let lock = lock(&beside(&root, "lock")).await?;
        if lock.is_some() {
            remove_drafts(base, &root);
        }
        let before = read_list(&beside(&root, "list"));
        Ok(Self {
            root,
            before,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.root
    }

    /// Removes what is gone, makes folders and links, and sees which files are wanted: their places
    /// among the entries. Also how many files and links were removed.
    pub(super) async fn arrange(&self, entries: &[Entry]) -> Result<(Vec<u32>, usize), String> {
        // Whatever happens now, the list names all that may be there.
        let all = self.before.clone().into_iter().chain(names(entries));
        self.write_list(&all.collect())?;
        let removed = self.remove_gone(entries)?;
        let mut wanted = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let path = self.root.join(entry.path());
            match &entry.content {
                Content::Folder => self.make_folder(entry.path())?,
                Content::Link { target } => self.make_link(&path, Path::new(target.as_os_str()))?,
                Content::File {
                    size,
                    digest,
                    executable,
                } => {
                    if holds(&path, *size, digest).await? {
                        set_mode(&path, *executable).map_err(at(&path))?;
                    } else {
                        make_way(&path)?;
                        wanted.push(place as u32);
                    }
                }
            }
        }
        Ok((wanted, removed))
    }

    /// Begins a file that was wanted.
    pub(super) fn draft(&self) -> Result<Draft, String> {
        Draft::new(&self.root)
    }

    /// Everything is there.
    pub(super) fn finish(&self, entries: &[Entry]) -> Result<(), String> {
        self.write_list(&names(entries).collect())
    }

    fn remove_gone(&self, entries: &[Entry]) -> Result<usize, String> {
        let stays: BTreeSet<&Path> = entries.iter().map(Entry::path).collect();
        let mut removed = 0;
        // What a folder holds comes behind it, and so is removed before it.
        let gone = self.before.iter().rev();
        for (path, folder) in gone.filter(|(path, _)| !stays.contains(path.as_path())) {
            if !rules::stays_inside(path) || !self.is_reached_without_links(path) {
                continue;
            }
            let full = self.root.join(path);
            if *folder {
                // Fails if somebody made something in it, which then stays.
                let _ = fs::remove_dir(&full);
                continue;
            }
            match fs::remove_file(&full) {
                Ok(()) => removed += 1,
                // Gone, or a folder that somebody made instead.
                Err(error) if missing(&error) || full.is_dir() => {}
                Err(error) => return Err(at(&full)(error)),
            }
        }
        Ok(removed)
    }

    /// Whether all folders above a path are folders: a link that somebody made there leads elsewhere.
    fn is_reached_without_links(&self, path: &Path) -> bool {
        path.ancestors()
            .skip(1)
            .all(|above| fs::symlink_metadata(self.root.join(above)).is_ok_and(|one| one.is_dir()))
    }

    fn make_folder(&self, path: &Path) -> Result<(), String> {
        let full = self.root.join(path);
        match fs::symlink_metadata(&full) {
            Ok(there) if there.is_dir() => return Ok(()),
            // A file of ours, where a folder is now.
            Ok(_) if self.before.get(path) == Some(&false) => {
                fs::remove_file(&full).map_err(at(&full))?;
            }
            Ok(_) => {
                return Err(format!(
                    "{} should be a folder, and something else is there that was not sent",
                    full.display()
                ));
            }
            Err(error) if missing(&error) => {}
            Err(error) => return Err(at(&full)(error)),
        }
        match fs::create_dir(&full) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(at(&full)(error)),
            _ => Ok(()),
        }
    }

    fn make_link(&self, path: &Path, target: &Path) -> Result<(), String> {
        if fs::read_link(path).is_ok_and(|now| now == target) {
            return Ok(());
        }
        make_way(path)?;
        let draft = draft_path(&self.root)?;
        symlink(target, &draft).map_err(at(path))?;
        fs::rename(&draft, path).map_err(|error| {
            let _ = fs::remove_file(&draft);
            at(path)(error)
        })
    }

    fn write_list(&self, names: &Names) -> Result<(), String> {
        let list: Vec<(Word, bool)> = names
            .iter()
            .map(|(path, folder)| (Word::from(path.as_os_str()), *folder))
            .collect();
        let path = beside(&self.root, "list");
        let text = serde_json::to_vec(&list).map_err(|error| error.to_string())?;
        let mut draft = self.draft()?;
        draft.write(&text).map_err(at(&path))?;
        draft.become_file(&path, false)
    }
}

/// A file that takes another's place when it is complete; what is left of it is removed when this is
/// dropped.
pub(super) struct Draft {
    file: File,
    path: PathBuf,
    digester: Digester,
    length: u64,
}

impl Draft {
    fn new(root: &Path) -> Result<Self, String> {
        let path = draft_path(root)?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(at(&path))?;
        Ok(Self {
            file,
            path,
            digester: Digester::new(),
            length: 0,
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digester.update(bytes);
        self.length += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// How much has been written.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Takes its place, if it is what was told.
    pub(super) fn settle(
        mut self,
        path: &Path,
        digest: &str,
        executable: bool,
    ) -> Result<(), String> {
        let digester = std::mem::replace(&mut self.digester, Digester::new());
        if digester.finish() != digest {
            return Err(format!("{}: it changed while it was sent", path.display()));
        }
        self.become_file(path, executable)
    }

    fn become_file(self, path: &Path, executable: bool) -> Result<(), String> {
        let placed = set_mode(&self.path, executable).and_then(|()| fs::rename(&self.path, path));
        placed.map_err(at(path))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It has gone if it took its place.
        let _ = fs::remove_file(&self.path);
    }
}

/// A file beside the folder.
fn beside(root: &Path, what: &str) -> PathBuf {
    let mut name = root.as_os_str().to_owned();
    name.push(format!(".{what}"));
    name.into()
}

fn draft_path(root: &Path) -> Result<PathBuf, String> {
    let word = random_word().map_err(|error| error.to_string())?;
    Ok(beside(root, &format!("draft-{word}")))
}

/// Removes drafts of an agent that was killed.
fn remove_drafts(base: &Path, root: &Path) {
    let begin = beside(root, "draft-");
    let begin = begin.as_os_str().as_encoded_bytes();
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.as_os_str().as_encoded_bytes().starts_with(begin) {
            // The next time, else.
            let _ = fs::remove_file(path);
        }
    }
}

/// Waits until nobody holds the lock.
async fn lock(path: &Path) -> Result<Option<File>, String> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(at(path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::Error(error)) => {
                debug!(%error, path = %path.display(), "no locks here");
                return Ok(None);
            }
        }
    }
}

/// What was put there; nothing if that is not known.
fn read_list(path: &Path) -> Names {
    let Ok(text) = fs::read(path) else {
        return Names::new();
    };
    let list: Vec<(Word, bool)> = serde_json::from_slice(&text).unwrap_or_else(|error| {
        debug!(%error, path = %path.display(), "no list");
        Vec::new()
    });
    list.into_iter()
        .map(|(path, folder)| (PathBuf::from(path.as_os_str()), folder))
        .collect()
}

fn names(entries: &[Entry]) -> impl Iterator<Item = (PathBuf, bool)> {
    entries
        .iter()
        .map(|entry| (entry.path().to_owned(), entry.content == Content::Folder))
}

/// Whether a file is there with this content.
async fn holds(path: &Path, size: u64, digest: &str) -> Result<bool, String> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() && there.len() == size => {}
        Ok(_) => return Ok(false),
        Err(error) if missing(&error) => return Ok(false),
        Err(error) => return Err(at(path)(error)),
    }
    // One that cannot be read is replaced.
    let own = digest_of_file(path).await;
    Ok(own.is_ok_and(|(own, _)| own == digest))
}

/// Removes an empty folder where a file or a link shall be; files and links are replaced at once.
fn make_way(path: &Path) -> Result<(), String> {
    if !fs::symlink_metadata(path).is_ok_and(|there| there.is_dir()) {
        return Ok(());
    }
    fs::remove_dir(path).map_err(|error| match error.kind() {
        ErrorKind::DirectoryNotEmpty => format!(
            "{} should be a file, and a folder is there with files that were not sent",
            path.display()
        ),
        _ => at(path)(error),
    })
}

fn set_mode(path: &Path, executable: bool) -> io::Result<()> {
    let now = fs::metadata(path)?.permissions().mode();
    let wanted = if executable { 0o755 } else { 0o644 };
    if now & 0o7777 == wanted {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(wanted))
}

fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}
