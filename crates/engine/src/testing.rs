//! Sessions whose ranks are threads of this process, for tests and examples.
//!
//! ```
//! use carole_engine::{ReduceOp, testing};
//!
//! let sums = testing::spawn(3, |session| {
//!     let mut tensor = [session.rank() as f32; 4];
//!     session.world().call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
//!     tensor[0]
//! });
//! assert_eq!(sums, [3.0, 3.0, 3.0]);
//! ```

use std::net::{IpAddr, Ipv4Addr};

use carole_plan::{Generation, Member, Membership, PeerId};

use crate::form::Peer;
use crate::session::{Options, Session};

/// Runs `body` on `size` ranks that share memory, each a thread with its own session.
///
/// # Panics
/// When a session cannot be formed or a rank panics.
pub fn spawn<R: Send>(size: usize, body: impl Fn(Session) -> R + Sync) -> Vec<R> {
    spawn_on(&vec![0; size], &Options::default(), body)
}

/// Runs `body` on one rank for each entry of `hosts`, which tells the rank's host: ranks of one
/// host share memory, others are connected by TCP over loopback.
///
/// # Panics
/// When a session cannot be formed or a rank panics.
pub fn spawn_on<R: Send>(
    hosts: &[usize],
    options: &Options,
    body: impl Fn(Session) -> R + Sync,
) -> Vec<R> {
    run(&peers(hosts), hosts, options, body)
}

/// The same with TLS between hosts.
///
/// # Panics
/// When a session cannot be formed or a rank panics.
pub fn spawn_tls<R: Send>(
    hosts: &[usize],
    options: &Options,
    body: impl Fn(Session) -> R + Sync,
) -> Vec<R> {
    run(&peers_tls(hosts), hosts, options, body)
}

fn run<R: Send>(
    peers: &[Peer],
    hosts: &[usize],
    options: &Options,
    body: impl Fn(Session) -> R + Sync,
) -> Vec<R> {
    let membership = membership(peers, hosts, 1);
    std::thread::scope(|scope| {
        let handles: Vec<_> = peers
            .iter()
            .map(|peer| scope.spawn(|| body(peer.form(&membership, options).expect("a session"))))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().expect("a rank panicked"))
            .collect()
    })
}

/// Peers on loopback, one for each entry of `hosts`.
///
/// # Panics
/// When a peer cannot listen.
pub fn peers(hosts: &[usize]) -> Vec<Peer> {
    bind_all(hosts, Peer::bind)
}

/// The same with TLS between hosts.
///
/// # Panics
/// When a peer cannot listen.
pub fn peers_tls(hosts: &[usize]) -> Vec<Peer> {
    bind_all(hosts, Peer::bind_tls)
}

type Bind = fn(PeerId, &str, &[u8], IpAddr) -> crate::error::Result<Peer>;

fn bind_all(hosts: &[usize], bind: Bind) -> Vec<Peer> {
    use ring::rand::{SecureRandom, SystemRandom};
    hosts
        .iter()
        .enumerate()
        .map(|(rank, host)| {
            let mut incarnation = [0u8; 16];
            SystemRandom::new()
                .fill(&mut incarnation)
                .expect("random bytes");
            let id = PeerId {
                host: format!("host-{host}"),
                slot: rank as u16,
                incarnation: u128::from_le_bytes(incarnation),
            };
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            bind(id, "testing", b"a token for tests", address).expect("a peer")
        })
        .collect()
}

/// The membership of some peers, as a coordinator would publish it.
pub fn membership(peers: &[Peer], hosts: &[usize], counter: u32) -> Membership {
    let members = peers
        .iter()
        .zip(hosts)
        .map(|(peer, host)| {
            let mut endpoint = peer.endpoint().clone();
            endpoint.machine = format!("machine-{host}");
            Member {
                peer: peer.id().clone(),
                endpoint,
            }
        })
        .collect();
    Membership {
        generation: Generation { term: 1, counter },
        members,
    }
}
