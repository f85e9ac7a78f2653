//! The form for several hosts: one command for each rank, and rank 0 is where they meet.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use carole_coordinator::{Client, Coordinator, State, Token, serve};
use carole_launch::random::random_incarnation;
use carole_plan::PeerId;
use tokio::sync::oneshot;

use super::measurement::Measurement;
use super::member::take_part;
use super::operation::ROOT;
use super::plan::Plan;
use super::process::Entrance;
use crate::args::BenchArguments;
use crate::failure::Failure;

/// Every such job has this name: the address and the token tell it from others.
const JOB: &str = "bench";

/// Which rank of how many this command is, and where it meets the others.
pub(super) struct Seat {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    address: String,
    token_file: PathBuf,
}

impl Seat {
    /// The seat that a command line names, if it names one.
    pub(super) fn new(arguments: &BenchArguments) -> Result<Option<Self>, Failure> {
        let (Some(rank), Some(ranks), Some(address), Some(token_file)) = (
            arguments.rank,
            arguments.size,
            &arguments.coordinator_address,
            &arguments.token_file,
        ) else {
            return Ok(None);
        };
        if rank >= ranks {
            return Err(
                Failure::usage(anyhow!("--rank {rank} is not below --size {ranks}"))
                    .with_hint("ranks are counted from 0"),
            );
        }
        Ok(Some(Self {
            rank: rank.into(),
            ranks: ranks.into(),
            address: address.clone(),
            token_file: token_file.clone(),
        }))
    }

    /// Measures with the other commands; on rank 0, `report` gets the results.
    pub(super) fn run(
        &self,
        plan: &Plan,
        report: &mut dyn FnMut(Measurement) -> anyhow::Result<()>,
    ) -> Result<(), Failure> {
        let token = Token::read(&self.token_file).map_err(|error| {
            Failure::usage(error).with_hint("the file holds 64 hexadecimal digits")
        })?;
        let client = Client::new(&self.address, token.clone())
            .map_err(|error| Failure::usage(error).with_hint("it is written HOST:PORT"))?;
        let serving =
            (self.rank == ROOT).then(|| Serving::start(client.address(), self.ranks, &token));
        let _serving = serving.transpose().map_err(Failure::new)?;
        let entrance = Entrance {
            client,
            token,
            job: JOB.to_owned(),
            peer: self.peer().map_err(Failure::new)?,
            rank: self.rank,
            address: None,
        };
        let (_peer, session) = entrance.session(plan).map_err(Failure::new)?;
        take_part(&session, plan, report).map_err(Failure::new)
    }

    fn peer(&self) -> anyhow::Result<PeerId> {
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        // The rank as the slot: several ranks may run on a host, none knows of the others.
        Ok(PeerId::new(host, self.rank as u16, random_incarnation()?))
    }
}

/// The coordinator, on a thread of its own until this is dropped.
struct Serving {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    fn start(address: &str, ranks: usize, token: &Token) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind(address))
            .with_context(|| format!("cannot listen on {address} for the other ranks"))?;
        let coordinator = Coordinator::new(State::new(JOB, ranks), token.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("coordinator".into())
            .spawn(move || {
                let shutdown = async { drop(stopped.await) };
                if let Err(error) = runtime.block_on(serve(listener, shutdown, coordinator)) {
                    tracing::error!(%error, "the coordinator failed");
                }
                runtime.shutdown_timeout(Duration::ZERO);
            })
            .context("cannot start the coordinator's thread")?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It has told its own troubles.
            let _ = thread.join();
        }
    }
}
