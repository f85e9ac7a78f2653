//! A job's entry in the registry, kept up to date while it runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, Instant};

use carole_launch::fleet::Way;
use carole_launch::registry::{End, HostRecord, Phase, Record, Registry};
use carole_launch::request::{Request, Ssh};
use carole_launch::{Event, Host, Report, Roles};
use tracing::debug;

use anyhow::anyhow;

use crate::failure::Failure;

/// Between two writings of what ranks use.
const PACE: Duration = Duration::from_secs(1);

/// The entry of one job.
pub(super) struct Track {
    registry: Option<Registry>,
    record: Record,
    /// When what ranks use was written last.
    usage_written: Option<Instant>,
}

impl Track {
    /// Enters a job; one of the same name must not run.
    pub(super) fn begin(name: &str, request: &Request) -> Result<Self, Failure> {
        let registry = Registry::of_user();
        if let Some(old) = registry.as_ref().and_then(|registry| registry.read(name))
            && old.phase() == Phase::Running
            && old.pid != rustix::process::getpid().as_raw_pid()
        {
            let error = anyhow!("a job named {name} runs already (process {})", old.pid);
            let hint = format!("carole stop {name} ends it; --name gives this one another name");
            return Err(Failure::usage(error).with_hint(hint));
        }
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let command = request.command.iter().map(text).collect();
        let logs = request.output.log_folder.as_ref();
        let logs = logs.and_then(|folder| absolute(folder).ok());
        let mut track = Self {
            record: Record::new(name, command, logs),
            registry,
            usage_written: None,
        };
        track.record.ssh = from_anywhere(&request.ssh);
        if let Some(registry) = &track.registry {
            registry.prune();
        }
        track.write();
        Ok(track)
    }

    /// Whether somebody can find the entry.
    pub(super) fn is_kept(&self) -> bool {
        self.registry.is_some()
    }

    /// The processes are known: so many on each host, in this folder.
    pub(super) fn plan(
        &mut self,
        roles: &Roles,
        hosts: &[Host],
        counts: &[usize],
        folder: Option<&Path>,
    ) {
        self.record.plan(roles, hosts, counts);
        for one in &mut self.record.hosts {
            one.folder = match (&one.host.way, folder) {
                (Way::Here, folder) => absolute(folder.unwrap_or(Path::new("."))).ok(),
                (Way::Ssh(_), folder) => folder.map(Path::to_owned),
            };
        }
    }

    /// What is known of the job.
    pub(super) fn record(&self) -> &Record {
        &self.record
    }

    /// Takes an event down; whether with it all processes have been started.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        let mut started = false;
        match event {
            Event::Located { host, folder } => {
                if let Some(one) = self.host(host) {
                    one.folder = Some(folder.clone());
                }
                // Written when the processes have been started.
                return false;
            }
            Event::Started { rank, host, pid } => {
                if let Some(one) = self.record.ranks.get_mut(*rank) {
                    one.host.clone_from(host);
                    one.pid = Some(*pid);
                }
                // Written once for all of them.
                if self.record.ranks.iter().any(|one| one.pid.is_none()) {
                    return false;
                }
                started = true;
            }
            Event::Exited { rank, exit } => {
                if let Some(one) = self.record.ranks.get_mut(*rank) {
                    one.exit = Some(*exit);
                    one.usage = None;
                }
            }
            Event::Usage {
                host,
                ranks,
                traffic,
            } => {
                for (rank, usage) in ranks {
                    if let Some(one) = self.record.ranks.get_mut(*rank) {
                        one.usage = Some(*usage).filter(|_| one.exit.is_none());
                    }
                }
                if let Some(one) = self.host(host) {
                    one.traffic = Some(*traffic);
                }
                // Many hosts tell; what is written at once is the latest of all.
                if self.usage_written.is_some_and(|at| at.elapsed() < PACE) {
                    return false;
                }
                self.usage_written = Some(Instant::now());
            }
            Event::Progress { rank, progress } => {
                if let Some(one) = self.record.ranks.get_mut(*rank) {
                    one.progress = Some(progress.clone());
                }
            }
            Event::Syncing(_) | Event::Synced | Event::Lost { .. } | Event::Printed { .. } => {
                return false;
            }
        }
        self.write();
        started
    }

    pub(super) fn end(&mut self, report: &Report) {
        let verdict = report.verdict.as_ref().map(ToString::to_string);
        for one in &mut self.record.ranks {
            one.usage = None;
        }
        for one in &mut self.record.hosts {
            one.traffic = None;
        }
        self.record.end = Some(End::now(report.exit_code(), verdict));
        self.write();
    }

    /// The job could not be started.
    pub(super) fn fail(&mut self, why: String) {
        self.record.end = Some(End::now(1, Some(why)));
        self.write();
    }

    fn host(&mut self, name: &str) -> Option<&mut HostRecord> {
        let hosts = &mut self.record.hosts;
        hosts.iter_mut().find(|one| one.host.name == name)
    }

    fn write(&self) {
        let written = self
            .registry
            .as_ref()
            .map(|registry| registry.write(&self.record));
        if let Some(Err(error)) = written {
            debug!(%error, "cannot write the job's entry");
        }
    }
}

/// How hosts are reached, also by who is in another folder.
fn from_anywhere(ssh: &Ssh) -> Ssh {
    let mut ssh = ssh.clone();
    ssh.identity = ssh.identity.map(|path| match absolute(&path) {
        // SSH knows what that means.
        _ if path.starts_with("~") => path,
        Ok(whole) => whole,
        Err(_) => path,
    });
    ssh
}

/// Where a detached job keeps what ranks print.
pub(super) fn log_folder(name: &str) -> Option<PathBuf> {
    Registry::of_user().map(|registry| registry.folder_of(name).join("logs"))
}
