//! The jobs of this user on this machine, so that they are found again.
//!
//! Each job has a folder under the user's state folder, with what is known of it in one file that
//! is replaced as a whole. A job whose launcher is gone without a word is told as lost. Nothing
//! depends on the registry: a job runs also where it cannot be written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::exit::Exit;
use crate::fleet::Host;
use crate::progress::Progress;
use crate::request::Ssh;
use crate::role::Roles;
use crate::stat::Stat;
use crate::usage::{Traffic, Usage};

/// The file in a job's folder.
const FILE: &str = "job.json";
/// Jobs that have ended are kept up to this number.
const KEPT: usize = 50;
/// As many more may be there before the oldest are forgotten.
const SPARE: usize = 14;

/// What is known of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub name: String,
    /// The launcher's process.
    pub pid: i32,
    /// When that process began, by the kernel's count: numbers of processes are used again.
    birth: u64,
    /// When the job was started, in seconds since 1970.
    pub started: f64,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What each process of it is.
    pub ranks: Vec<RankRecord>,
    /// How many of each role they are, once that is known.
    #[serde(default)]
    pub roles: Option<Roles>,
    /// Its hosts, once it is known what runs where.
    #[serde(default)]
    pub hosts: Vec<HostRecord>,
    /// How SSH gets in there.
    #[serde(default)]
    pub ssh: Ssh,
    /// The folder with what ranks printed, if that is kept.
    pub logs: Option<PathBuf>,
    /// How it ended, once it has.
    pub end: Option<End>,
}

/// One process of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankRecord {
    /// What it is called: `rank 2`, `ps 0`.
    pub name: String,
    /// Where it runs.
    pub host: String,
    /// Its process there.
    pub pid: Option<i32>,
    /// How far it is, as it told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What it uses while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How it ended, once it has.
    pub exit: Option<Exit>,
}

/// One host of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Its name, and how it is reached.
    #[serde(flatten)]
    pub host: Host,
    /// The folder in which its processes were started.
    pub folder: Option<PathBuf>,
    /// What it receives and sends while the job runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<Traffic>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When, in seconds since 1970.
    pub at: f64,
    /// The launcher's exit code.
    pub code: i32,
    /// Why it did not end well, if it did not.
    pub verdict: Option<String>,
}

/// How a job is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Its launcher runs.
    Running,
    /// It ended well.
    Done,
    /// It did not.
    Failed,
    /// Its launcher is gone without a word.
    Lost,
}

impl Phase {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

impl Record {
    /// A job of this process that begins now.
    pub fn new(name: &str, command: Vec<String>, logs: Option<PathBuf>) -> Self {
        let pid = rustix::process::getpid().as_raw_pid();
        Self {
            name: name.to_owned(),
            pid,
            birth: birth(pid).unwrap_or(0),
            started: now(),
            command,
            ranks: Vec::new(),
            roles: None,
            hosts: Vec::new(),
            ssh: Ssh::default(),
            logs,
            end: None,
        }
    }

    /// It is known what runs where: so many processes on each host.
    pub fn plan(&mut self, roles: &Roles, hosts: &[Host], counts: &[usize]) {
        let host_names = hosts
            .iter()
            .zip(counts)
            .flat_map(|(host, count)| std::iter::repeat_n(&host.name, *count));
        let ranks = roles.names().into_iter().zip(host_names);
        self.ranks = ranks
            .map(|(name, host)| RankRecord {
                name,
                host: host.clone(),
                pid: None,
                progress: None,
                usage: None,
                exit: None,
            })
            .collect();
        self.roles = Some(*roles);
        self.hosts = hosts
            .iter()
            .map(|host| HostRecord {
                host: host.clone(),
                folder: None,
                traffic: None,
            })
            .collect();
    }

    /// How the job is now.
    pub fn phase(&self) -> Phase {
        match &self.end {
            Some(End { code: 0, .. }) => Phase::Done,
            Some(_) => Phase::Failed,
            None if birth(self.pid) == Some(self.birth) => Phase::Running,
            None => Phase::Lost,
        }
    }

    /// How long it has taken.
    pub fn age(&self) -> Duration {
        let until = self.end.as_ref().map_or_else(now, |end| end.at);
        Duration::try_from_secs_f64(until - self.started).unwrap_or_default()
    }
}

/// The folder of all jobs.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

impl Registry {
    /// The user's own; none where there is no home.
    pub fn of_user() -> Option<Self> {
        let variable = |name| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let state = variable("XDG_STATE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".local/state")))?;
        Some(Self::new(state.join("carole/jobs")))
    }

    /// In this folder.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The folder of a job.
    pub fn folder_of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes what is known of a job, for nobody else to read.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let folder = self.folder_of(&record.name);
        fs::create_dir_all(&folder)?;
        let text = serde_json::to_vec_pretty(record).map_err(io::Error::other)?;
        let new = folder.join(format!("{FILE}.{}", std::process::id()));
        // It tells how the user gets into other hosts.
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(&text)?;
        fs::rename(new, folder.join(FILE))
    }

    /// What is known of a job, if there is one of that name.
    pub fn read(&self, name: &str) -> Option<Record> {
        read(&self.folder_of(name))
    }

    /// All jobs, the newest first.
    pub fn all(&self) -> Vec<Record> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut records: Vec<Record> = entries.filter_map(|entry| read(&entry.path())).collect();
        records.sort_by(|a, b| b.started.total_cmp(&a.started));
        records
    }

    /// Forgets the oldest jobs that have ended.
    pub fn prune(&self) {
        // Looking at each costs as much as a rank's start: it is done now and then.
        let count = fs::read_dir(&self.folder).map_or(0, Iterator::count);
        if count < KEPT + SPARE {
            return;
        }
        let ended = self
            .all()
            .into_iter()
            .filter(|record| record.phase() != Phase::Running);
        for old in ended.skip(KEPT) {
            // Another launcher may do the same at the same time.
            let _ = fs::remove_dir_all(self.folder_of(&old.name));
        }
    }
}

fn read(folder: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(folder.join(FILE)).ok()?).ok()
}

/// Seconds since 1970, to the millisecond: such numbers are read back as they were written.
fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_millis() as f64 / 1000.0)
}

/// When a process began, if it is there.
fn birth(pid: i32) -> Option<u64> {
    Some(Stat::of(pid)?.birth)
}

impl End {
    /// Now, with this code.
    pub fn now(code: i32, verdict: Option<String>) -> Self {
        Self {
            at: now(),
            code,
            verdict,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn jobs_are_found_again_and_the_lost_are_told_from_the_running() {
        let folder = std::env::temp_dir().join(format!("carole-registry-{}", std::process::id()));
        let registry = Registry::new(folder.clone());
        assert!(registry.all().is_empty());
        let mut record = Record::new("one", vec!["true".into()], None);
        registry.write(&record).unwrap();
        assert_eq!(registry.read("one").unwrap(), record);
        assert_eq!(record.phase(), Phase::Running);
        let written = fs::metadata(registry.folder_of("one").join(FILE)).unwrap();
        assert_eq!(written.permissions().mode() & 0o777, 0o600);
        record.birth += 1;
        assert_eq!(
            record.phase(),
            Phase::Lost,
            "another process has the number"
        );
        record.end = Some(End::now(3, Some("rank 1 exited".into())));
        assert_eq!(record.phase(), Phase::Failed);
        record.name = "two".into();
        record.started += 5.0;
        registry.write(&record).unwrap();
        let names: Vec<String> = registry.all().into_iter().map(|job| job.name).collect();
        assert_eq!(names, ["two", "one"]);
        assert!(registry.read("three").is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}
