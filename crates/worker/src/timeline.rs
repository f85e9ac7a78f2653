//! Which file a rank records its timeline in.
//!
//! All ranks of a job are told one path, and each needs a file of its own.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What stands for the rank.
const RANK: &[u8] = b"{rank}";

/// This rank's file: `{rank}` becomes the rank; where it is missing, `.RANK` goes before the
/// extension.
pub(crate) fn path(file: &Path, rank: usize) -> PathBuf {
    let mut rest = file.as_os_str().as_bytes();
    let mut path = Vec::with_capacity(rest.len() + 8);
    let rank = rank.to_string();
    let mut found = false;
    while let Some(first) = rest.first() {
        if let Some(after) = rest.strip_prefix(RANK) {
            path.extend(rank.as_bytes());
            (rest, found) = (after, true);
        } else {
            path.push(*first);
            rest = &rest[1..];
        }
    }
    if found {
        return PathBuf::from(OsString::from_vec(path));
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{rank}"));
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_file_of_its_own() {
        for (file, expected) in [
            ("trace-{rank}.json", "trace-12.json"),
            ("/runs/{rank}/trace.{rank}", "/runs/12/trace.12"),
            ("trace.json", "trace.12.json"),
            ("/runs.d/trace", "/runs.d/trace.12"),
            ("trace.tar.gz", "trace.tar.12.gz"),
            (".hidden", ".hidden.12"),
            ("{rank", "{rank.12"),
        ] {
            assert_eq!(path(Path::new(file), 12), Path::new(expected), "{file}");
        }
    }
}
