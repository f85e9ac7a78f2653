//! Words for shells, so that they arrive as they were given.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Words as `sh` reads them.
pub(super) fn for_sh(words: &[impl AsRef<OsStr>]) -> Vec<u8> {
    let mut text = Vec::new();
    for word in words {
        if !text.is_empty() {
            text.push(b' ');
        }
        text.push(b'\'');
        for byte in word.as_ref().as_bytes() {
            match byte {
                b'\'' => text.extend(b"'\"'\"'"),
                byte => text.push(*byte),
            }
        }
        text.push(b'\'');
    }
    text
}

/// A command line for whichever shell a user has on a host.
///
/// Shells agree on what single quotes mean except for backslashes, exclamation marks and line ends.
/// Words with those travel as numbers.
pub fn command_line(words: &[OsString]) -> OsString {
    let quoted = for_sh(words);
    if !quoted.iter().any(|byte| b"\\!\n\r".contains(byte)) {
        return OsString::from_vec(quoted);
    }
    let mut numbers = String::new();
    for byte in quoted {
        write!(numbers, "\\{byte:03o}").expect("writing to a string cannot fail");
    }
    format!("exec sh -c 'eval \"exec $(printf \"{numbers}\")\"'").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_by(shell: &str, line: &OsStr) -> Vec<u8> {
        let done = std::process::Command::new(shell)
            .arg("-c")
            .arg(line)
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        done.stdout
    }

    #[test]
    fn words_arrive_as_they_were_given() {
        let odd: [&[u8]; 8] = [
            b"plain",
            b"two words",
            b"",
            b"it's $HOME `pwd` \"x\" ; * ~ # &",
            b"a\\b\\\\n",
            b"hey!",
            b"two\nlines\n",
            b"\xff\xfe not a text",
        ];
        for count in 1..=odd.len() {
            let given = &odd[..count];
            let mut words: Vec<OsString> = vec!["printf".into(), "%s\\0".into()];
            words.extend(given.iter().map(|word| OsString::from_vec(word.to_vec())));
            let expected: Vec<u8> = given
                .iter()
                .flat_map(|word| [word, &b"\0"[..]].concat())
                .collect();
            for shell in ["sh", "bash"] {
                assert_eq!(read_by(shell, &command_line(&words)), expected, "{shell}");
                let text = OsString::from_vec(for_sh(&words));
                assert_eq!(read_by(shell, &text), expected, "{shell}");
            }
        }
    }

    #[test]
    fn plain_words_stay_readable() {
        let words = ["sh", "-c", "echo $HOME"].map(OsString::from);
        assert_eq!(command_line(&words), "'sh' '-c' 'echo $HOME'");
        let line = command_line(&["echo", "a\\b"].map(OsString::from));
        let line = line.to_str().unwrap();
        assert!(!line.contains("\\\\"), "fish would make one of two: {line}");
    }
}
