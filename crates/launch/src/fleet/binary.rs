//! This program's own binary, as it is sent to hosts that do not have it.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::agent::cache_folder;
use crate::digest::digest_of;

/// A binary, by its digest.
#[derive(Clone)]
pub(super) struct Binary {
    /// The digest, in hexadecimal digits; names the file in the hosts' caches.
    digest: String,
    size: u64,
    path: PathBuf,
    memory: PathBuf,
    /// Read when the first host asks for it.
    bytes: Arc<OnceLock<Vec<u8>>>,
}

impl Binary {
    /// Finds out a binary's digest. `memory` is the file in which it is remembered for the next
    /// time: nearly always all hosts have the binary, and its bytes need not be read.
    pub(super) fn find(path: &Path, memory: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let bytes = OnceLock::new();
        let digest = remembered(memory, &metadata).map_or_else(
            || {
                let read = fs::read(path)?;
                let digest = digest_of(&read);
                let _ = bytes.set(read);
                remember(memory, &metadata, &digest);
                Ok::<_, io::Error>(digest)
            },
            Ok,
        )?;
        Ok(Self {
            digest,
            size: metadata.size(),
            path: path.to_owned(),
            memory: memory.to_owned(),
            bytes: Arc::new(bytes),
        })
    }

    /// What is in it.
    pub(super) fn bytes(&self) -> io::Result<&[u8]> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }
        let read = fs::read(&self.path)?;
        if digest_of(&read) != self.digest {
            let _ = fs::remove_file(&self.memory);
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this carole is not the one that was remembered; start again",
            ));
        }
        Ok(self.bytes.get_or_init(|| read))
    }

    /// What a host's shell runs: has the binary sent if it is not there, and becomes an agent.
    ///
    /// In one line, without quotes of the kind around it or exclamation marks, so that whichever
    /// shell the user has there passes it on to `sh`.
    pub(super) fn script(&self) -> String {
        let (digest, size) = (&self.digest, self.size);
        format!(
            "exec sh -c '\
            f=\"${{XDG_CACHE_HOME:-$HOME/.cache}}/carole/carole-{digest}\"; \
            if [ -x \"$f\" ]; then echo {HAVE}; else \
            echo {NEED} \"$(uname -s -m)\"; read -r go || exit 1; t=\"$f.$$\"; \
            if (umask 077; mkdir -p \"${{f%/*}}\" && head -c {size} > \"$t\" && chmod 700 \"$t\") \
            && \"$t\" self-check {digest} && mv -f \"$t\" \"$f\"; then echo {STORED}; \
            else case $? in 126) echo {MAY_NOT_RUN} >&2;; 127) echo {CANNOT_RUN} >&2;; esac; \
            rm -f \"$t\"; exit 1; fi; fi; exec \"$f\" agent'"
        )
    }
}

/// The file in which the digest of this user's binary is remembered.
pub(super) fn memory() -> PathBuf {
    cache_folder().join("digest")
}

/// What tells a file from every other, and from itself before it was changed.
fn identity(of: &Metadata) -> String {
    let (dev, inode, size) = (of.dev(), of.ino(), of.size());
    let (changed, moved) = (of.mtime(), of.ctime());
    let (changed_ns, moved_ns) = (of.mtime_nsec(), of.ctime_nsec());
    format!("{dev} {inode} {size} {changed}.{changed_ns} {moved}.{moved_ns} ")
}

fn remembered(memory: &Path, metadata: &Metadata) -> Option<String> {
    let text = fs::read_to_string(memory).ok()?;
    let digest = text.strip_prefix(&identity(metadata))?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| digest.to_owned())
}

/// Whether this succeeds or not, the digest is right: the next start takes longer if it does not.
fn remember(memory: &Path, metadata: &Metadata, digest: &str) {
    let name = format!("digest.{}", std::process::id());
    let new = memory.with_file_name(name);
    let written = memory.parent().map_or(Ok(()), fs::create_dir_all);
    let written = written.and_then(|()| fs::write(&new, identity(metadata) + digest));
    // Others may do the same at the same time; whole files take each other's place.
    if written.and_then(|()| fs::rename(&new, memory)).is_err() {
        let _ = fs::remove_file(&new);
    }
}

/// What the script says: the binary is there.
pub(super) const HAVE: &str = "carole-have";
/// It has to be sent; the system and the processor follow.
pub(super) const NEED: &str = "carole-need";
/// It has been stored.
pub(super) const STORED: &str = "carole-stored";

/// What it says to a person where the shell may not execute the binary.
pub(super) const MAY_NOT_RUN: &str = "carole may not be executed there";
/// What it says where the system cannot: the loader that the binary names is missing.
pub(super) const CANNOT_RUN: &str = "carole cannot be started there";

/// What a binary was built for, as `uname -s -m` writes it.
pub(super) fn platform() -> String {
    format!("Linux {}", std::env::consts::ARCH)
}

/// Whether this process's own file has this digest.
pub fn has_digest(expected: &str) -> io::Result<bool> {
    Ok(digest_of(&fs::read("/proc/self/exe")?) == expected)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::fleet::host::hint;

    /// A folder with a binary in it.
    struct Folder(PathBuf);

    impl Folder {
        fn new(bytes: &[u8]) -> Self {
            let name = format!("carole-binary-{}-{}", std::process::id(), digest_of(bytes));
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("binary"), bytes).unwrap();
            Self(folder)
        }

        fn memory(&self) -> PathBuf {
            self.0.join("memory/digest")
        }

        fn find(&self) -> Binary {
            Binary::find(&self.0.join("binary"), &self.memory()).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_digest_is_remembered_until_the_binary_changes() {
        let folder = Folder::new(b"one");
        let (first, second) = (folder.find(), folder.find());
        assert_eq!(first.digest, digest_of(b"one"));
        assert_eq!(second.digest, first.digest);
        assert!(first.bytes.get().is_some() && second.bytes.get().is_none());
        assert_eq!(second.bytes().unwrap(), b"one");

        fs::write(folder.0.join("binary"), b"other").unwrap();
        assert_eq!(folder.find().digest, digest_of(b"other"));

        let right = fs::read_to_string(folder.memory()).unwrap();
        let other = right.replace(&digest_of(b"other"), &digest_of(b"one"));
        fs::write(folder.memory(), other).unwrap();
        let wrong = folder.find();
        assert_eq!(
            wrong.bytes().unwrap_err().kind(),
            io::ErrorKind::Unsupported
        );
        assert_eq!(
            folder.find().digest,
            digest_of(b"other"),
            "it was forgotten"
        );

        for wrong in ["", "nonsense", "\0\u{fffd}"] {
            let right = fs::read_to_string(folder.memory()).unwrap();
            fs::write(folder.memory(), right.replace(&digest_of(b"other"), wrong)).unwrap();
            assert_eq!(folder.find().digest, digest_of(b"other"), "{wrong:?}");
        }
    }

    /// What a host says to which this binary is sent, and what a person is told then.
    fn sent(bytes: &'static [u8]) -> (String, Option<String>) {
        let folder = Folder::new(bytes);
        let binary = folder.find();
        let cache = folder.0.join("cache");
        let mut shell = Command::new("sh")
            .args(["-c", &binary.script()])
            .env("XDG_CACHE_HOME", &cache)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = shell.stdin.take().unwrap();
        stdin.write_all(&[b"go\n", bytes].concat()).unwrap();
        drop(stdin);
        let done = shell.wait_with_output().unwrap();
        assert!(!done.status.success());
        let left = fs::read_dir(cache.join("carole")).unwrap().count();
        assert_eq!(left, 0, "what cannot run does not stay");
        let said = String::from_utf8(done.stderr).unwrap();
        let hint = hint(&said, "b");
        (said, hint)
    }

    #[test]
    fn a_host_on_which_it_cannot_start_leads_to_the_static_build() {
        // As a program whose loader is not there, and one for a newer C library.
        let (said, hint) = sent(b"#!/nonexistent/loader\n");
        assert!(said.contains(CANNOT_RUN), "{said}");
        assert!(hint.unwrap().contains("make build"));
        let (said, hint) =
            sent(b"#!/bin/sh\necho \"version 'GLIBC_2.99' not found\" >&2; exit 1\n");
        assert!(!said.contains(CANNOT_RUN), "{said}");
        assert!(hint.unwrap().contains("make build"));
    }

    #[test]
    fn the_script_is_one_line_that_every_shell_passes_on() {
        let script = Folder::new(b"abc").find().script();
        let inner = script
            .strip_prefix("exec sh -c '")
            .and_then(|rest| rest.strip_suffix('\''))
            .unwrap();
        assert!(!inner.contains(['\'', '!', '\n']), "{inner}");
        assert!(inner.contains("head -c 3 "));
        assert!(
            inner.contains("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            "the known digest of abc"
        );
    }
}
