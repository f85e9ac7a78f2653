//! One host of a job and its agent.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Reach;
use super::binary::{self, Binary};
use super::host::{self, Host, Way};
use super::link::{Incoming, Link, Means};
use crate::channel::message::{Hello, Order as AgentOrder, PROTOCOL, Report as AgentReport};
use crate::error::{Error, HostProblem};

/// How long an agent that has nothing to do may take to end.
const LAST_WORD: Duration = Duration::from_secs(2);

/// One host and its agent.
pub(crate) struct Member {
    pub(crate) host: Host,
    pub(super) link: Link,
    pub(crate) hello: Hello,
    /// What ranks printed before their agent told that they were started.
    pub(super) early: Vec<Incoming>,
}

impl Member {
    /// Gives an order and waits for the report that answers it.
    pub(crate) async fn ask(
        &mut self,
        order: AgentOrder,
        limit: Duration,
    ) -> Result<AgentReport, HostProblem> {
        self.link.order(order).await;
        match tokio::time::timeout(limit, self.next_report()).await {
            Ok(report) => report,
            Err(_) => Err(self.problem(format!("no answer after {:.0} s", limit.as_secs_f64()))),
        }
    }

    /// Ends the agent, and waits for that a little.
    pub(crate) async fn end(mut self) {
        self.link.order(AgentOrder::End).await;
        let ended = async { while self.link.incoming.recv().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORD, ended).await;
    }

    pub(super) async fn next_report(&mut self) -> Result<AgentReport, HostProblem> {
        loop {
            match self.link.incoming.recv().await {
                Some(Incoming::Report(report)) => return Ok(report),
                Some(Incoming::Ended(problem)) => return Err(problem),
                Some(printed @ Incoming::Printed { .. }) => self.early.push(printed),
                None => return Err(self.problem("its agent is gone".into())),
            }
        }
    }

    pub(crate) fn problem(&self, problem: String) -> HostProblem {
        HostProblem {
            host: self.host.name.clone(),
            hint: host::hint(&problem, &self.host.name),
            problem,
        }
    }
}

/// Ends agents, and waits for that a little.
pub(crate) async fn end_all(members: impl IntoIterator<Item = Member>) {
    let ending: JoinSet<()> = members.into_iter().map(Member::end).collect();
    ending.join_all().await;
}

/// Starts an agent on every host, all at once; in the hosts' order, who takes part or why not.
pub(crate) async fn join_all(
    hosts: &[Host],
    reach: &Reach,
) -> Result<Vec<Result<Member, HostProblem>>, Error> {
    let remote = hosts.iter().any(|host| host.way != Way::Here);
    let binary = remote
        .then(|| {
            Binary::find(&reach.binary, &binary::memory()).map_err(|source| Error::Unreadable {
                path: reach.binary.clone(),
                source,
            })
        })
        .transpose()?;
    let means = Means {
        agent: reach.agent.clone(),
        ssh: reach.ssh.clone(),
        binary,
        // A little less, so that SSH says itself what keeps it.
        connect_seconds: reach.timeout.as_secs().saturating_sub(1),
    };
    let mut joining = JoinSet::new();
    for (index, host) in hosts.iter().cloned().enumerate() {
        let (means, limit) = (means.clone(), reach.timeout);
        joining.spawn(async move {
            let joined = tokio::time::timeout(limit, join(&host, &means)).await;
            let late = || HostProblem {
                host: host.name.clone(),
                problem: format!("no answer after {:.0} s", limit.as_secs_f64()),
                hint: host::hint("timed out", &host.name),
            };
            (index, joined.unwrap_or_else(|_| Err(late())))
        });
    }
    let mut all = Vec::new();
    while let Some(joined) = joining.join_next().await {
        all.push(joined.map_err(|error| Error::Internal(error.to_string()))?);
    }
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, joined)| joined).collect())
}

/// Starts an agent and waits for its first report.
async fn join(host: &Host, means: &Means) -> Result<Member, HostProblem> {
    let link = Link::open(host, means).await?;
    let mut member = Member {
        host: host.clone(),
        link,
        hello: Hello {
            protocol: 0,
            version: String::new(),
            cores: 0,
            nodes: Vec::new(),
            gpus: 0,
        },
        early: Vec::new(),
    };
    match member.next_report().await? {
        AgentReport::Hello(hello) if hello.protocol == PROTOCOL => {
            member.hello = hello;
            Ok(member)
        }
        AgentReport::Hello(hello) => {
            let problem = format!("its agent is version {}", hello.version);
            Err(member.problem(problem))
        }
        other => Err(member.problem(format!("it began with {other:?}"))),
    }
}
