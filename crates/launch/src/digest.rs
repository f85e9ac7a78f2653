//! SHA-256 digests, in hexadecimal digits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ring::digest::{Context, SHA256};

/// How much is read at once.
const READ: usize = 64 << 10;

/// The digest of bytes that come piece by piece.
pub(crate) struct Digester(Context);

impl Digester {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        for byte in self.0.finish().as_ref() {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
        }
        text
    }
}

/// The digest of bytes that are there.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    let mut digester = Digester::new();
    digester.update(bytes);
    digester.finish()
}

/// The digest and the length of a file. Others get their turn while a long one is read.
pub(crate) async fn digest_of_file(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut digester = Digester::new();
    let (mut bytes, mut length) = (vec![0; READ], 0);
    loop {
        let count = file.read(&mut bytes)?;
        if count == 0 {
            return Ok((digester.finish(), length));
        }
        digester.update(&bytes[..count]);
        length += count as u64;
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_digest_of_the_whole() {
        let mut digester = Digester::new();
        digester.update(b"a");
        digester.update(b"");
        digester.update(b"bc");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digester.finish(), known);
        assert_eq!(digest_of(b"abc"), known);
    }
}
