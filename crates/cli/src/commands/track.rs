//! A job's entry in the registry, kept up to date while it runs.

use std::ffi::OsString;
use std::path::PathBuf;

use carole_launch::registry::{End, Phase, RankRecord, Record, Registry};
use carole_launch::request::Request;
use carole_launch::{Event, Report, Roles};
use tracing::debug;

use anyhow::anyhow;

use crate::failure::Failure;

/// The entry of one job.
pub(super) struct Track {
    registry: Option<Registry>,
    record: Record,
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
        let logs = logs.and_then(|folder| std::path::absolute(folder).ok());
        let track = Self {
            record: Record::new(name, command, logs),
            registry,
        };
        if let Some(registry) = &track.registry {
            registry.prune();
        }
        track.write();
        Ok(track)
    }

    /// The processes are known.
    pub(super) fn plan(&mut self, roles: &Roles) {
        self.record.ranks = (0..roles.size())
            .map(|number| RankRecord {
                name: roles.describe(number),
                host: String::new(),
                pid: None,
                progress: None,
                exit: None,
            })
            .collect();
    }

    /// The processes, as they are called.
    pub(super) fn names(&self) -> Vec<String> {
        self.record
            .ranks
            .iter()
            .map(|one| one.name.clone())
            .collect()
    }

    /// Takes an event down; whether with it all processes have been started.
    pub(super) fn note(&mut self, event: &Event) -> bool {
        let mut started = false;
        match event {
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
                }
            }
            Event::Progress { rank, progress } => {
                if let Some(one) = self.record.ranks.get_mut(*rank) {
                    one.progress = Some(progress.clone());
                }
            }
            Event::Lost { .. } | Event::Printed { .. } => return false,
        }
        self.write();
        started
    }

    pub(super) fn end(&mut self, report: &Report) {
        let verdict = report.verdict.as_ref().map(ToString::to_string);
        self.record.end = Some(End::now(report.exit_code(), verdict));
        self.write();
    }

    /// The job could not be started.
    pub(super) fn fail(&mut self, why: String) {
        self.record.end = Some(End::now(1, Some(why)));
        self.write();
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

/// Where a detached job keeps what ranks print.
pub(super) fn log_folder(name: &str) -> Option<PathBuf> {
    Registry::of_user().map(|registry| registry.folder_of(name).join("logs"))
}
