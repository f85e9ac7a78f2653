//! What runs on a host around a command.
//!
//! # Expected flow
//!
//! The user's shell there gets a line that is always the same but for a number ([`Script::line`]), and so
//! needs no quoting. It has `sh` read the script itself ([`Script::text`]) from standard input,
//! which stays open. The script marks both output streams when the command begins, and again, with
//! the code, when it has ended (see [`marks`](super::marks)).
//!
//! # Guarantees
//!
//! When standard input ends before the command does, which it also does when SSH or the launcher is
//! killed or the connection breaks, the command's process group is asked to end, and killed after
//! [`GRACE`]. A script that arrives in part does nothing.
//!
//! # Caveats
//!
//! A process that leaves the command's session (`setsid`) is on its own, as under SSH alone. What a
//! command that ended left in the background stays.

use std::ffi::OsString;
use std::time::Duration;

use super::quote;

/// How long a command that was asked to end may take.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// The end of a script that arrived whole.
const LAST: &str = "#whole";

/// The script for one command.
pub(super) struct Script {
    /// The text that the line on the host reads.
    pub(super) text: Vec<u8>,
    /// What every mark begins with.
    pub(super) mark: String,
}

impl Script {
    /// Around these words; `first` and `second` are two halves of a mark that nobody else prints.
    pub(super) fn new(words: &[OsString], first: &str, second: &str) -> Self {
        let grace = GRACE.as_secs();
        // A shell that is not the first of its process group, for whatever stands above it, begins
        // a session. The mark is in halves: a shell that traces what it does must not print it.
        let before = format!(
            "read -r a b c d g r </proc/$$/stat; \
             if [ -n \"$g\" ] && [ \"$g\" != $$ ] && [ $# -eq 0 ] && command -v setsid >/dev/null; \
             then exec setsid sh -c \"$s\" sh again; fi; \
             e=; trap e=1 TERM; exec 3<&0 </dev/null; \
             (trap \"\" TERM; while read -r x; do :; done; \
             kill -s TERM -- -$$; sleep {grace}; kill -s KILL -- -$$) <&3 3<&- >/dev/null 2>&1 & \
             w=$!; exec 3<&-; \
             m() {{ printf \"%s%s%s;\" {first} {second} $1; }}; m begun; m begun >&2; \
             [ -n \"$e\" ] || (exec "
        );
        let after = format!(
            "); c=$?; [ -z \"$e\" ] || kill -s KILL -- -$$; \
             m $c; m $c >&2; kill -s KILL $w; exit $c {LAST}"
        );
        let text = [before.as_bytes(), &quote::for_sh(words), after.as_bytes()].concat();
        Self {
            text,
            mark: format!("{first}{second}"),
        }
    }

    /// What `sh -c` is given on the host.
    pub(super) fn reader(&self) -> String {
        let size = self.text.len();
        format!("s=$(head -c {size}); case $s in *\"{LAST}\") eval \"$s\";; esac")
    }

    /// What the user's shell on the host is given.
    pub(super) fn line(&self) -> String {
        format!("exec sh -c '{}'", self.reader())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Output, Stdio};

    use super::*;

    fn run(script: &Script, given: &[u8]) -> Output {
        let mut child = Command::new("sh")
            .args(["-c", &script.line()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(given).unwrap();
        // Open until the command has ended.
        let done = child.wait_with_output().unwrap();
        drop(stdin);
        done
    }

    #[test]
    fn the_line_is_one_that_every_shell_passes_on() {
        let script = Script::new(&["it's".into()], "one", "two");
        let line = script.line();
        let inner = line
            .strip_prefix("exec sh -c '")
            .and_then(|rest| rest.strip_suffix('\''))
            .unwrap();
        assert!(!inner.contains(['\'', '!', '\n', '\\']), "{inner}");
    }

    #[test]
    fn the_streams_are_marked_around_what_a_command_prints() {
        let words = ["sh", "-c", "echo out; echo err >&2; exit 3"].map(OsString::from);
        let script = Script::new(&words, "one", "two");
        let done = run(&script, &script.text);
        assert_eq!(done.status.code(), Some(3));
        assert_eq!(done.stdout, b"onetwobegun;out\nonetwo3;");
        assert_eq!(done.stderr, b"onetwobegun;err\nonetwo3;");
    }

    #[test]
    fn words_of_the_shell_are_no_commands() {
        let script = Script::new(&["exit".into(), "0".into()], "one", "two");
        let done = run(&script, &script.text);
        assert_eq!(done.status.code(), Some(127));
        assert!(done.stdout.ends_with(b"onetwo127;"), "{done:?}");
    }

    #[test]
    fn a_script_that_arrives_in_part_does_nothing() {
        let script = Script::new(&["echo".into(), "ran".into()], "one", "two");
        for length in [0, 10, script.text.len() - 10, script.text.len() - 1] {
            let mut child = Command::new("sh")
                .args(["-c", &script.reader()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(&script.text[..length]).unwrap();
            drop(stdin);
            let done = child.wait_with_output().unwrap();
            assert_eq!(done.stdout, b"", "{length}");
        }
    }
}
