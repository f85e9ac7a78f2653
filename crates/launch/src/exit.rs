//! How a process ended, and how that is told.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Exit {
    /// What a shell's `$?` says of a command.
    ///
    /// A shell counts signal n as 128 + n, and so do many programs for what they ran. 129 stays a
    /// code: git and others exit with it when they are called wrongly.
    pub fn from_shell(code: i32) -> Self {
        match code {
            130..=159 => Self::Signal(code - 128),
            _ => Self::Code(code),
        }
    }

    /// Whether it ended well.
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code a shell would give: the program's own, or 128 + n for signal n.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Writes what comes after "rank 2": `exited with signal 11 (SIGSEGV)`.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(signal) => match signal_name(signal) {
                Some(name) => write!(f, "exited with signal {signal} ({name})"),
                None => write!(f, "exited with signal {signal}"),
            },
        }
    }
}

/// The name of a signal, numbered as on every Linux that Carole runs on.
pub fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    let index = usize::try_from(signal).ok()?.checked_sub(1)?;
    NAMES.get(index).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_told_as_a_shell_counts_them() {
        assert_eq!(Exit::Code(3).to_string(), "exited with code 3");
        assert_eq!(Exit::Code(3).code(), 3);
        assert_eq!(
            Exit::Signal(11).to_string(),
            "exited with signal 11 (SIGSEGV)"
        );
        assert_eq!(Exit::Signal(11).code(), 139);
        assert_eq!(Exit::Signal(64).to_string(), "exited with signal 64");
        assert_eq!(signal_name(0), None);
        assert_eq!(signal_name(31), Some("SIGSYS"));
        for code in [0, 1, 128, 129, 130, 139, 159, 160, 255] {
            assert_eq!(Exit::from_shell(code).code(), code);
        }
        assert_eq!(Exit::from_shell(137), Exit::Signal(9));
        assert_eq!(Exit::from_shell(129), Exit::Code(129));
    }
}
