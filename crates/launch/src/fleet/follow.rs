//! A job from its ranks' start to the end of the last one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::begin::Begun;
use super::link::Incoming;
use super::links::Links;
use super::member::Member;
use super::screen::{Screen, earlier};
use super::shell::Shells;
use super::{Event, Job, Order, Report};
use crate::channel::message::{HostUsage, Order as AgentOrder, Report as AgentReport, Signal};
use crate::error::HostProblem;
use crate::output::Output;
use crate::relay;
use crate::request::Terminal;
use crate::supervision::{Action, Supervision, Verdict};

/// How long output may take once it was given up.
const LAST_OUTPUT: Duration = Duration::from_millis(100);

/// A job whose ranks run.
pub(super) struct Following<'job, E> {
    job: &'job Job,
    on_event: E,
    started: Instant,
    /// How many ranks each host has, and its name.
    ranks: Vec<usize>,
    names: Vec<String>,
    links: Links,
    screen: Screen,
    shells: Option<Shells>,
    supervision: Supervision,
    /// Ranks of which something may be left, or to be printed.
    open: BTreeSet<usize>,
    abandoned: bool,
}

impl<'job, E: FnMut(Event)> Following<'job, E> {
    pub(super) fn new(members: Vec<Member>, begun: Begun, job: &'job Job, on_event: E) -> Self {
        let Begun {
            ranks,
            hosts,
            screen,
            shells,
        } = begun;
        Self {
            job,
            on_event,
            started: Instant::now(),
            ranks,
            names: members.iter().map(|m| m.host.name.clone()).collect(),
            links: Links::new(members),
            screen,
            shells,
            supervision: Supervision::new(job.size(), job.grace)
                .on_hosts(hosts)
                .with_roles(job.roles),
            open: (0..job.size()).collect(),
            abandoned: false,
        }
    }

    /// Watches the ranks to their end.
    pub(super) async fn run(
        mut self,
        output: Output,
        mut orders: mpsc::UnboundedReceiver<Order>,
    ) -> Report {
        let mut orders_open = true;
        while !self.abandoned && !self.open.is_empty() {
            let wake_at = earlier(
                self.supervision.wake_at().map(|at| self.started + at),
                self.screen.wake_at(),
            );
            let timer = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let actions = tokio::select! {
                event = self.links.next() => match event {
                    Some((index, incoming)) => self.heard(index, incoming),
                    None => break,
                },
                order = orders.recv(), if orders_open => match order {
                    Some(order) => self.ordered(order),
                    None => {
                        orders_open = false;
                        continue;
                    }
                },
                () = timer => {
                    self.screen.tick();
                    self.supervision.tick(self.started.elapsed())
                }
            };
            for action in actions {
                self.act(action).await;
            }
        }
        self.end(output).await
    }

    /// Takes what came from the agent of a host.
    fn heard(&mut self, index: usize, incoming: Incoming) -> Vec<Action> {
        let now = self.started.elapsed();
        match incoming {
            incoming if incoming.rank() >= Some(self.job.size()) => {
                if let Some(shells) = &self.shells {
                    shells.deliver(incoming);
                }
            }
            Incoming::Printed {
                rank,
                stream,
                bytes,
            } => {
                self.screen.print(rank, stream, &bytes);
                if self.job.output.terminal == Terminal::Tui {
                    (self.on_event)(Event::Printed {
                        rank,
                        stream,
                        bytes,
                    });
                } else {
                    relay::recycle(bytes);
                }
            }
            Incoming::Report(AgentReport::Exited { rank, exit }) => {
                debug!(rank, %exit, "rank ended");
                (self.on_event)(Event::Exited { rank, exit });
                return self.supervision.exited(now, rank, exit);
            }
            Incoming::Report(AgentReport::Progress { rank, progress }) => {
                (self.on_event)(Event::Progress { rank, progress });
            }
            Incoming::Report(AgentReport::Usage(HostUsage { ranks, traffic })) => {
                let host = self.names[index].clone();
                (self.on_event)(Event::Usage {
                    host,
                    ranks,
                    traffic,
                });
            }
            Incoming::Report(AgentReport::Drained { rank, .. }) => {
                self.screen.finish(rank);
                self.open.remove(&rank);
            }
            Incoming::Report(other) => debug!(?other, "an unexpected report"),
            Incoming::Ended(problem) => return self.lost(now, index, problem),
        }
        Vec::new()
    }

    /// The agent of a host is gone, and with it everything there.
    fn lost(&mut self, now: Duration, index: usize, problem: HostProblem) -> Vec<Action> {
        let first = self.ranks[..index].iter().sum::<usize>();
        let lost = first..first + self.ranks[index];
        self.open.retain(|rank| !lost.contains(rank));
        if let Some(shells) = &self.shells {
            shells.lost(index, &problem);
        }
        let HostProblem { host, problem, .. } = problem;
        let reason = format!("lost {host}: {problem}");
        match self.ranks[index] {
            // What the others started there is gone.
            0 => self.supervision.give_up(now, reason),
            _ => self.supervision.lost(now, lost, reason),
        }
    }

    fn ordered(&mut self, order: Order) -> Vec<Action> {
        let now = self.started.elapsed();
        match order {
            Order::Interrupt(interrupt) => self.supervision.interrupt(now, interrupt),
            Order::GiveUp(reason) => self.supervision.give_up(now, reason),
        }
    }

    async fn act(&mut self, action: Action) {
        let running = self.supervision.running().len();
        let signal = match action {
            Action::ReportLost { rank, exit } => {
                (self.on_event)(Event::Lost { rank, exit });
                return;
            }
            Action::Terminate(reason) => {
                let grace = format!("{:.1} s", self.job.grace.as_secs_f64());
                warn!(reason, running, grace, "stopping the ranks that run");
                Signal::Terminate
            }
            Action::Kill(reason) => {
                warn!(reason, running, "killing the ranks that run");
                Signal::Kill
            }
            Action::Abandon => {
                self.abandoned = true;
                return;
            }
        };
        for (link, ranks) in self.links.links.iter().zip(&self.ranks) {
            // What ranks started elsewhere is theirs to end, in their own way.
            if *ranks > 0 || signal == Signal::Kill {
                link.order(AgentOrder::Signal(signal)).await;
            }
        }
    }

    /// Ends the agents, shows what was not shown, and reports.
    async fn end(mut self, output: Output) -> Report {
        let elapsed = self.started.elapsed();
        self.links.order(&AgentOrder::End).await;
        let ending = async {
            // Each agent's last event comes when nothing is left on its host.
            while self.links.next().await.is_some() {}
        };
        let _ = tokio::time::timeout(self.job.grace, ending).await;
        let verdict = self.supervision.verdict().cloned();
        self.screen.end();
        let (last_lines, exception) = match &verdict {
            Some(Verdict::Failed { rank, .. }) => {
                let rank = *rank;
                (self.screen.last_lines(rank), self.screen.exception(rank))
            }
            _ => (Vec::new(), None),
        };
        // What it wrote last is on its way when it is gone.
        drop(self.screen);
        output.finish(self.abandoned.then_some(LAST_OUTPUT)).await;
        Report {
            verdict,
            last_lines,
            exception,
            elapsed,
        }
    }
}
