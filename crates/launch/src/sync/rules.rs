//! Which paths and links may be sent, by the launcher's judgement and again by the agent's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use crate::digest::digest_of;

/// The longest path, in bytes: no file system takes a longer one.
const LONGEST_PATH: usize = 4096;
/// The longest name in a path, in bytes.
const LONGEST_NAME: usize = 255;
/// Characters of a folder's own name that its name on hosts begins with.
const KEPT_NAME: usize = 40;
/// Digits of the digest that it ends with.
const KEPT_DIGITS: usize = 10;

/// Whether a path stays below the folder that it begins in.
pub(super) fn stays_inside(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let named = |name: &[u8]| {
        !matches!(name, b"" | b"." | b"..") && name.len() <= LONGEST_NAME && !name.contains(&0)
    };
    bytes.len() <= LONGEST_PATH && bytes.split(|byte| *byte == b'/').all(named)
}

/// Whether a link at `path`, which stays inside, leads to a place inside too.
///
/// An absolute target does not: it would name another place on another host.
pub(super) fn leads_inside(path: &Path, target: &Path) -> bool {
    let bytes = target.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() > LONGEST_PATH || bytes.contains(&0) {
        return false;
    }
    let mut depth = path.components().count().saturating_sub(1);
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// What a folder of this host is called on others: a name that a person knows, and digits that no
/// other folder or launcher has.
pub(crate) fn folder_name(host: &[u8], folder: &Path) -> String {
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    let own = folder.file_name().map(OsStr::to_string_lossy);
    let own: String = own
        .iter()
        .flat_map(|name| name.chars())
        .map(plain)
        .collect();
    let own = own.trim_start_matches('.');
    let begin = if own.is_empty() { "folder" } else { own };
    let begin = &begin[..begin.len().min(KEPT_NAME)];
    let digest = digest_of(&[host, b"\0", folder.as_os_str().as_bytes()].concat());
    format!("{begin}-{}", &digest[..KEPT_DIGITS])
}

/// Whether a name is one that [`folder_name`] could have made.
pub(super) fn names_folder(name: &str) -> bool {
    !name.starts_with('.')
        && (1..=KEPT_NAME + 1 + KEPT_DIGITS).contains(&name.len())
        && name.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_lead_out_are_refused() {
        for good in ["a", "a/b.py", ".hidden", "..a", "a/...", "with space/ü"] {
            assert!(stays_inside(Path::new(good)), "{good}");
        }
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            "a\0b",
        ] {
            assert!(!stays_inside(Path::new(bad)), "{bad:?}");
        }
        assert!(!stays_inside(Path::new(&"n".repeat(256))));
        assert!(!stays_inside(Path::new(
            &"n/".repeat(2048).replace("n/n", "n/nn")
        )));
    }

    #[test]
    fn links_lead_to_places_inside_only() {
        let leads = |path: &str, target: &str| leads_inside(Path::new(path), Path::new(target));
        assert!(leads("link", "file"));
        assert!(leads("a/b/link", "../../file"));
        assert!(leads("a/link", "./x/../../file"));
        assert!(!leads("link", "../file"));
        assert!(!leads("a/link", "x/../../../file"));
        assert!(!leads("a/link", "/etc/passwd"));
        assert!(!leads("a/link", ""));
    }

    #[test]
    fn a_folder_s_name_tells_it_from_others() {
        let name = |host: &str, folder: &str| folder_name(host.as_bytes(), Path::new(folder));
        let one = name("laptop", "/home/ann/my code");
        assert!(one.starts_with("my_code-") && names_folder(&one), "{one}");
        assert_eq!(one, name("laptop", "/home/ann/my code"));
        assert_ne!(one, name("other", "/home/ann/my code"));
        assert_ne!(one, name("laptop", "/home/bob/my code"));
        for odd in ["/", "/x/...", "/x/ünï", &format!("/{}", "ü".repeat(200))] {
            assert!(names_folder(&name("laptop", odd)), "{odd}");
        }
        for bad in ["", ".", "..", "a/b", "../a", ".a", &"a".repeat(90)] {
            assert!(!names_folder(bad), "{bad}");
        }
    }
}
