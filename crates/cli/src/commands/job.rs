//! One job: a coordinator in this process, agents on the hosts, ranks beside them.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use carole_coordinator::{Coordinator, State, Token, serve};
use carole_launch::random::random_token;
use carole_launch::{Event, Fleet, Job, Order, Output, Reach, Report, Role};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use super::agent;
use carole_launch::request::{Ssh, Talk};

/// How hosts are reached, with this binary as the agent everywhere.
pub(super) fn reach(ssh: Ssh, timeout: Duration) -> Reach {
    Reach {
        agent: agent::command(Talk::Usual),
        binary: "/proc/self/exe".into(),
        ssh,
        timeout,
    }
}

/// What interrupts a job, and what else may.
pub(super) struct Orders {
    pub(super) sender: mpsc::UnboundedSender<Order>,
    pub(super) received: mpsc::UnboundedReceiver<Order>,
}

impl Orders {
    pub(super) fn new() -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        Self { sender, received }
    }
}

#[expect(clippy::too_many_arguments, reason = "each is a part of the job")]
/// Runs a job to its end. `job` makes it, once it is known where the coordinator listens.
///
/// When some ranks have registered and the others have not after `start_limit`, the job is given up.
pub(super) async fn carry_out(
    fleet: Fleet,
    name: &str,
    size: usize,
    job: impl FnOnce(SocketAddr, Token) -> Job,
    output: Output,
    orders: Orders,
    start_limit: Duration,
    mut on_event: impl FnMut(&Event),
) -> anyhow::Result<Report> {
    let token = random_token()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .context("cannot listen on a loopback port for the coordinator")?;
    let address = listener
        .local_addr()
        .context("the coordinator has no address")?;
    let coordinator = Coordinator::new(State::new(name, size), token.clone());
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { drop(stopped.await) };
    let server = tokio::spawn(serve(listener, shutdown, coordinator.clone()));
    let watching = {
        let (coordinator, orders) = (coordinator.clone(), orders.sender);
        tokio::spawn(async move {
            let reason = coordinator.overdue(start_limit).await;
            // Nobody listens when the job has ended.
            let _ = orders.send(Order::GiveUp(reason));
        })
    };
    let job = job(address, token);
    let report = fleet
        .run(&job, output, orders.received, |event| {
            if let Event::Lost { rank, exit } = &event {
                // Only workers are members.
                let task = job.roles.task(*rank);
                if task.role == Role::Worker {
                    coordinator.report_lost(task.index, &exit.to_string(), Some(exit.code()));
                }
            }
            on_event(&event);
        })
        .await;
    watching.abort();
    drop(stop);
    server
        .await
        .context("the coordinator failed")?
        .context("the coordinator failed")?;
    Ok(report?)
}
