//! The hosts of a job, and how each is reached.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::binary;
use crate::request::Ssh;

/// A host, as a person wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, for people and in ids.
    pub name: String,
    /// How to reach it.
    pub way: Way,
}

/// How a host is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// It is this one.
    Here,
    /// By SSH.
    Ssh(Destination),
}

/// Where SSH connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// A name or an address, or a name of the user's SSH configuration.
    pub host: String,
    /// The user, where one was given.
    pub user: Option<String>,
    /// The port, where one was given.
    pub port: Option<u16>,
}

impl Host {
    /// This host.
    pub fn here() -> Self {
        Self {
            name: "localhost".into(),
            way: Way::Here,
        }
    }
}

/// How to start an agent on this host: a program that calls [`agent::run`](crate::agent::run).
#[derive(Clone, Debug)]
pub struct AgentCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// The words of an `ssh` command that runs `script` on a host, which nobody watches.
pub(crate) fn ssh_words(
    destination: &Destination,
    ssh: &Ssh,
    connect_seconds: u64,
    script: &str,
) -> Vec<OsString> {
    let mut words = option_words(ssh);
    // Nobody could answer a question for one of many hosts.
    words.extend(option("BatchMode=yes"));
    words.extend(option(&format!(
        "ConnectTimeout={}",
        connect_seconds.max(1)
    )));
    // A network that is gone is noticed within a minute.
    words.extend(option("ServerAliveInterval=15"));
    words.extend(option("ServerAliveCountMax=4"));
    words.extend(access_words(destination, ssh));
    words.extend(["-T".into(), "--".into()]);
    words.push((&destination.host).into());
    words.push(script.into());
    words
}

/// The words of an `ssh` command for a person: a shell on the host, or `script` instead.
///
/// With `terminal` it gets one there even for a script.
pub fn ssh_words_for_person(
    destination: &Destination,
    ssh: &Ssh,
    terminal: bool,
    script: Option<OsString>,
) -> Vec<OsString> {
    let mut words = option_words(ssh);
    words.extend(access_words(destination, ssh));
    if terminal {
        words.push("-t".into());
    }
    words.push("--".into());
    words.push((&destination.host).into());
    words.extend(script);
    words
}

fn option(text: &str) -> [OsString; 2] {
    ["-o".into(), text.into()]
}

/// What is asked of SSH in general. The user's own options come first: with SSH the first value of
/// an option counts.
fn option_words(ssh: &Ssh) -> Vec<OsString> {
    let mut words: Vec<OsString> = ssh.options.iter().flat_map(|given| option(given)).collect();
    if ssh.trust_any_host {
        words.extend(option("StrictHostKeyChecking=no"));
        words.extend(option("UserKnownHostsFile=/dev/null"));
        words.extend(option("LogLevel=ERROR"));
    }
    words
}

/// As whom, through which port and with which key.
fn access_words(destination: &Destination, ssh: &Ssh) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if let Some(port) = destination.port.or(ssh.port) {
        words.extend(["-p".into(), port.to_string().into()]);
    }
    if let Some(user) = destination.user.as_ref().or(ssh.user.as_ref()) {
        words.extend(["-l".into(), user.into()]);
    }
    if let Some(identity) = &ssh.identity {
        words.extend(["-i".into(), identity.into()]);
    }
    words
}

/// What may help, by what SSH said.
pub(crate) fn hint(said: &str, host: &str) -> Option<String> {
    let other_system = "this carole was built for another C library than the host has; one that is \
                        linked statically runs on any Linux: make build makes it";
    let hints = [
        (binary::CANNOT_RUN, other_system),
        ("GLIBC_", other_system),
        (
            binary::MAY_NOT_RUN,
            "the cache folder there is mounted noexec; XDG_CACHE_HOME can name another place",
        ),
        (
            "Permission denied (os error",
            "may you read and write there?",
        ),
        (
            "Permission denied",
            "is your key there and loaded (ssh-add -l)? `ssh HOST true` must work without a question",
        ),
        (
            "Host key verification failed",
            "connect once by hand to check its key (ssh HOST), or pass --ssh-trust",
        ),
        (
            "REMOTE HOST IDENTIFICATION HAS CHANGED",
            "its key is not the one you know; if that is right, remove the old one (ssh-keygen -R HOST)",
        ),
        (
            "Could not resolve hostname",
            "is the name spelled right, and known here or in ~/.ssh/config?",
        ),
        (
            "Connection refused",
            "does an SSH server run there, and on this port?",
        ),
        (
            "timed out",
            "is the host up, and is its port reachable from here?",
        ),
        (
            "No route to host",
            "is the host up, and on a network that is reachable from here?",
        ),
        (
            "are needed, and",
            "each rank needs two ports, and the first host two more; give a wider range (--ports)",
        ),
        (
            "No space left on device",
            "the home folder there is full; XDG_CACHE_HOME can name another place",
        ),
        (
            "quota exceeded",
            "there is no room left for you there; XDG_CACHE_HOME can name another place",
        ),
        (
            "changed while it was sent",
            "start again when nothing writes to it; what a .gitignore names is not sent",
        ),
        (
            "Read-only file system",
            "the home folder there cannot be written; XDG_CACHE_HOME can name another place",
        ),
    ];
    hints
        .iter()
        .find(|(sign, _)| said.contains(sign))
        .map(|(_, hint)| hint.replace("HOST", host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_names_wins_over_what_holds_for_all() {
        let destination = Destination {
            host: "b".into(),
            user: Some("ann".into()),
            port: None,
        };
        let ssh = Ssh {
            user: Some("bob".into()),
            port: Some(2222),
            options: vec!["Compression=yes".into()],
            ..Ssh::default()
        };
        let words = ssh_words(&destination, &ssh, 10, "true");
        let line = words.join(&OsString::from(" "));
        let line = line.to_str().unwrap();
        assert!(
            line.starts_with("-o Compression=yes -o BatchMode=yes"),
            "{line}"
        );
        assert!(line.ends_with("-p 2222 -l ann -T -- b true"), "{line}");
        let words = ssh_words_for_person(&destination, &ssh, true, None);
        let line = words.join(&OsString::from(" "));
        assert_eq!(line, "-o Compression=yes -p 2222 -l ann -t -- b");
    }

    #[test]
    fn what_ssh_says_leads_to_a_hint() {
        let said = "ann@b: Permission denied (publickey).";
        assert!(hint(said, "b").unwrap().contains("ssh b true"));
        assert_eq!(hint("something else", "b"), None);
    }
}
