//! This program's own binary, as it is sent to hosts that do not have it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::digest::digest_of;

/// A binary and its digest.
#[derive(Clone)]
pub(super) struct Binary {
    pub(super) bytes: Arc<[u8]>,
    /// The digest, in hexadecimal digits; names the file in the hosts' caches.
    pub(super) digest: String,
}

impl Binary {
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let bytes: Arc<[u8]> = fs::read(path)?.into();
        Ok(Self {
            digest: digest_of(&bytes),
            bytes,
        })
    }

    /// What a host's shell runs: has the binary sent if it is not there, and becomes an agent.
    ///
    /// In one line, without quotes of the kind around it or exclamation marks, so that whichever
    /// shell the user has there passes it on to `sh`.
    pub(super) fn script(&self) -> String {
        let (digest, size) = (&self.digest, self.bytes.len());
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

    /// What a host says to which this binary is sent, and what a person is told then.
    fn sent(bytes: &'static [u8]) -> (String, Option<String>) {
        let binary = Binary {
            bytes: Arc::from(bytes),
            digest: digest_of(bytes),
        };
        let name = format!("carole-binary-{}-{}", std::process::id(), binary.digest);
        let cache = std::env::temp_dir().join(name);
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
        fs::remove_dir_all(&cache).unwrap();
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
        assert!(hint.unwrap().contains("make static"));
        let (said, hint) =
            sent(b"#!/bin/sh\necho \"version 'GLIBC_2.99' not found\" >&2; exit 1\n");
        assert!(!said.contains(CANNOT_RUN), "{said}");
        assert!(hint.unwrap().contains("make static"));
    }

    #[test]
    fn the_script_is_one_line_that_every_shell_passes_on() {
        let binary = Binary {
            bytes: Arc::from(&b"abc"[..]),
            digest: digest_of(b"abc"),
        };
        let script = binary.script();
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
