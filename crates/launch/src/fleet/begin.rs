//! The beginning of a job: its hosts are prepared, its ranks started.

use std::net::IpAddr;
use std::path::PathBuf;

use tokio::sync::mpsc;
use tracing::info;

use super::screen::Screen;
use super::shell::Shells;
use super::{Event, Fleet, Job, Order, plan};
use crate::channel::message::{Order as AgentOrder, Report as AgentReport, Word};
use crate::error::Error;
use crate::output::Output;
use crate::supervision::Verdict;

/// What came of starting the ranks.
pub(super) enum Beginning {
    Begun(Box<Begun>),
    /// It was given up before.
    Ended(Verdict),
}

/// A job whose ranks were started.
pub(super) struct Begun {
    /// How many, by host.
    pub(super) ranks: Vec<usize>,
    /// Each rank's host.
    pub(super) hosts: Vec<String>,
    pub(super) screen: Screen,
    pub(super) shells: Option<Shells>,
}

impl Fleet {
    /// Prepares the hosts and starts the ranks.
    pub(super) async fn begin(
        &mut self,
        job: &Job,
        output: &Output,
        orders: &mut mpsc::UnboundedReceiver<Order>,
        on_event: &mut impl FnMut(Event),
    ) -> Result<Beginning, Error> {
        let mut ranks = job.ranks.clone();
        if job.remote_shell.is_none() {
            // Hosts that get no rank have nothing to do.
            let mut counts = job.ranks.iter();
            self.members
                .retain(|_| counts.next().is_some_and(|ranks| *ranks > 0));
            ranks.retain(|count| *count > 0);
        }
        let folders = tokio::select! {
            folders = self.folders(job, on_event) => folders?,
            verdict = ordered_to_end(orders) => return Ok(Beginning::Ended(verdict)),
        };
        let prepared = self.prepare(job, &ranks, &folders).await?;
        let mut starts = plan::starts(job, &ranks, &self.members, &prepared)?;
        let shells = match &job.remote_shell {
            Some(shell) => {
                let shells = Shells::open(&shell.program, job, &self.members, &prepared)?;
                for (start, host) in starts.iter_mut().zip(&prepared) {
                    let words = shell.address_option.as_deref().map(|option| {
                        let address = host.address.to_string();
                        [Word::from(option), Word::Text(address)]
                    });
                    for rank in &mut start.ranks {
                        rank.variables.extend(shells.variables());
                        let words = words.clone().into_iter().flatten();
                        rank.arguments.splice(0..0, words);
                    }
                }
                Some(shells)
            }
            None => None,
        };
        let hosts = self.rank_hosts(&ranks);
        let local: Vec<usize> = ranks.iter().flat_map(|count| 0..*count).collect();
        let screen = Screen::new(&job.output, job.colour, &job.roles, &hosts, &local, output)?;
        for (member, start) in self.members.iter().zip(starts) {
            member.link.order(AgentOrder::Start(start)).await;
        }
        for event in self.started(job, &ranks).await? {
            on_event(event);
        }
        info!(job = job.job, size = job.size(), "ranks started");
        Ok(Beginning::Begun(Box::new(Begun {
            ranks,
            hosts,
            screen,
            shells,
        })))
    }

    /// The host of every rank, in words, where there is more than one.
    fn rank_hosts(&self, ranks: &[usize]) -> Vec<String> {
        if ranks.iter().filter(|count| **count > 0).count() < 2 {
            return Vec::new();
        }
        let each = self.members.iter().zip(ranks);
        each.flat_map(|(member, ranks)| std::iter::repeat_n(member.host.name.clone(), *ranks))
            .collect()
    }

    /// Where ranks start, for each host; what is to be sent is sent for that.
    async fn folders(
        &mut self,
        job: &Job,
        on_event: &mut impl FnMut(Event),
    ) -> Result<Vec<Option<PathBuf>>, Error> {
        match &job.sync {
            Some(root) => {
                let folders = self.send_folder(root, on_event).await?;
                for (member, folder) in self.members.iter().zip(&folders) {
                    on_event(Event::Located {
                        host: member.host.name.clone(),
                        folder: folder.clone(),
                    });
                }
                Ok(folders.into_iter().map(Some).collect())
            }
            None => Ok(vec![job.folder.clone(); self.members.len()]),
        }
    }

    /// Has every host prepare, and waits for all.
    async fn prepare(
        &mut self,
        job: &Job,
        ranks: &[usize],
        folders: &[Option<PathBuf>],
    ) -> Result<Vec<plan::Prepared>, Error> {
        for (index, member) in self.members.iter().enumerate() {
            member.link.serve_coordinator(job.coordinator);
            let order = plan::prepare(
                job,
                &member.host,
                folders[index].as_deref(),
                ranks[index],
                index == 0,
            );
            member.link.order(AgentOrder::Prepare(order)).await;
        }
        let mut prepared = Vec::new();
        let mut problems = Vec::new();
        for member in &mut self.members {
            match member.next_report().await {
                Ok(AgentReport::Prepared(one)) => prepared.push(one),
                Ok(AgentReport::Refused(problem)) => problems.push(member.problem(problem)),
                Ok(other) => problems.push(member.problem(format!("it reported {other:?}"))),
                Err(problem) => problems.push(problem),
            }
        }
        if !problems.is_empty() {
            return Err(Error::Hosts(problems));
        }
        let told: Vec<_> = prepared
            .iter()
            .zip(&self.members)
            .map(|(one, member)| (&member.host.way, one.address, one.launcher))
            .collect();
        let addresses = plan::addresses(&told, !job.interfaces.is_empty());
        Ok(prepared
            .into_iter()
            .zip(addresses)
            .map(|(one, address)| plan::Prepared {
                address,
                ports: one.ports,
                coordinator: one.coordinator.map_or(job.coordinator, |port| {
                    (IpAddr::from([127, 0, 0, 1]), port).into()
                }),
                token_file: one.token_file.into(),
            })
            .collect())
    }

    /// Waits until every host has started its ranks.
    async fn started(&mut self, job: &Job, ranks: &[usize]) -> Result<Vec<Event>, Error> {
        let mut problems = Vec::new();
        let mut events = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let first: usize = ranks[..index].iter().sum();
            match member.next_report().await {
                Ok(AgentReport::Started(pids)) => {
                    events.extend(pids.into_iter().enumerate().map(|(local, pid)| {
                        Event::Started {
                            rank: first + local,
                            host: member.host.name.clone(),
                            pid,
                        }
                    }));
                }
                Ok(AgentReport::NotStarted { rank, problem }) => {
                    return Err(Error::Spawn {
                        rank,
                        host: member.host.name.clone(),
                        program: job.command_of(job.roles.task(rank).role)[0]
                            .to_string_lossy()
                            .into_owned(),
                        problem,
                    });
                }
                Ok(other) => problems.push(member.problem(format!("it reported {other:?}"))),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(events)
        } else {
            Err(Error::Hosts(problems))
        }
    }
}

/// Waits until somebody wants the job to end before it has begun.
async fn ordered_to_end(orders: &mut mpsc::UnboundedReceiver<Order>) -> Verdict {
    match orders.recv().await {
        Some(Order::Interrupt(interrupt)) => Verdict::Interrupted(interrupt),
        Some(Order::GiveUp(reason)) => Verdict::GivenUp(reason),
        None => std::future::pending().await,
    }
}
