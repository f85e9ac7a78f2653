//! A rank in a process of its own: how it finds the others, and what it does then.

use std::io::Write;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use carole_coordinator::{Client, Error, Token, addresses};
use carole_engine::{Peer, Session};
use carole_plan::PeerId;

use super::measurement::Measurement;
use super::member::{options, take_part};
use super::plan::Plan;

/// How long ranks wait for one another at the start.
const MEETING_LIMIT: Duration = Duration::from_secs(60);
/// How long the coordinator's name may take to be looked up.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(10);
/// Pause before a coordinator that is not there yet is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// A rank's way into its session.
pub(super) struct Entrance {
    pub(super) client: Client,
    pub(super) token: Token,
    pub(super) job: String,
    pub(super) peer: PeerId,
    pub(super) rank: usize,
    /// Where the others reach this rank; found out if nobody said.
    pub(super) address: Option<IpAddr>,
}

impl Entrance {
    /// What the environment of a launched process says.
    pub(super) fn from_environment() -> anyhow::Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).with_context(|| format!("{name} is not set as `carole bench` does"))
        };
        let token = Token::read(Path::new(&variable("CAROLE_TOKEN_FILE")?))?;
        Ok(Self {
            client: Client::new(&variable("CAROLE_COORDINATOR")?, token.clone())?,
            token,
            job: variable("CAROLE_JOB")?,
            peer: variable("CAROLE_PEER")?.parse()?,
            rank: variable("CAROLE_RANK")?
                .parse()
                .context("CAROLE_RANK is not a rank")?,
            address: std::env::var("CAROLE_ADDRESS")
                .ok()
                .map(|address| address.parse().context("CAROLE_ADDRESS is no address"))
                .transpose()?,
        })
    }

    /// Meets the others at the coordinator and forms the session with them.
    pub(super) fn session(&self, plan: &Plan) -> anyhow::Result<(Peer, Session)> {
        let address = match self.address {
            Some(address) => address,
            None => own_address(self.client.address())?,
        };
        let peer = Peer::bind(self.peer.clone(), &self.job, self.token.as_bytes(), address)?;
        let deadline = Instant::now() + MEETING_LIMIT;
        loop {
            match self.client.register(peer.id(), self.rank, peer.endpoint()) {
                Ok(_) => break,
                Err(Error::Connect { .. } | Error::Connection { .. } | Error::NoAnswer { .. })
                    if Instant::now() + RETRY < deadline =>
                {
                    // Ranks on other hosts may be started before rank 0.
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let membership = self.client.wait_membership(0, MEETING_LIMIT)?;
        let session = peer.form(&membership, &options(plan))?;
        Ok((peer, session))
    }
}

/// The address of this host on the way to `coordinator`: the job's own interface.
fn own_address(coordinator: &str) -> anyhow::Result<IpAddr> {
    let target = addresses(coordinator, Instant::now() + LOOK_UP_LIMIT)
        .with_context(|| format!("cannot look up {coordinator}"))?[0];
    let any: IpAddr = if target.is_ipv4() {
        [0; 4].into()
    } else {
        [0_u16; 8].into()
    };
    // Nothing is sent: connecting a datagram socket only chooses the way.
    let socket = UdpSocket::bind((any, 0)).context("cannot open a socket")?;
    socket
        .connect(target)
        .with_context(|| format!("there is no way to {coordinator}"))?;
    Ok(socket.local_addr().context("a socket has no address")?.ip())
}

/// What a process started by `carole bench` does; rank 0 hands its results over as lines.
pub(super) fn run_launched(plan: &Plan) -> anyhow::Result<()> {
    let entrance = Entrance::from_environment()?;
    let (peer, session) = entrance.session(plan)?;
    let mut stdout = std::io::stdout();
    take_part(&session, plan, &mut |measurement: Measurement| {
        let line = serde_json::to_string(&measurement).context("writing a result")?;
        writeln!(stdout, "{line}").context("handing a result over")
    })?;
    drop(session);
    // The launcher sees the end of this process in any case.
    if let Err(error) = entrance.client.leave(peer.id()) {
        tracing::debug!(%error, "cannot say farewell");
    }
    Ok(())
}
