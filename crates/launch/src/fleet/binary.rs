//! This program's own binary, as it is sent to hosts that do not have it.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ring::digest::{SHA256, digest};

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
            digest: hex(&bytes),
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
            else rm -f \"$t\"; exit 1; fi; fi; exec \"$f\" agent'"
        )
    }
}

/// What the script says: the binary is there.
pub(super) const HAVE: &str = "carole-have";
/// It has to be sent; the system and the processor follow.
pub(super) const NEED: &str = "carole-need";
/// It has been stored.
pub(super) const STORED: &str = "carole-stored";

/// What a binary was built for, as `uname -s -m` writes it.
pub(super) fn platform() -> String {
    format!("Linux {}", std::env::consts::ARCH)
}

/// Whether this process's own file has this digest.
pub fn has_digest(expected: &str) -> io::Result<bool> {
    Ok(hex(&fs::read("/proc/self/exe")?) == expected)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_one_line_that_every_shell_passes_on() {
        let binary = Binary {
            bytes: Arc::from(&b"abc"[..]),
            digest: hex(b"abc"),
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
