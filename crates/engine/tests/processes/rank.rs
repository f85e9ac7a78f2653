//! The side of a rank: a process that does what it is told over its standard input.

use std::io::{BufRead, Write};
use std::net::{IpAddr, Ipv4Addr};

use carole_engine::{Error, Peer, ReduceOp, Session};
use carole_plan::{Member, PeerId};

use super::orders::{FLEET, MARK, Order, Reply, SLOT, TLS};

fn say(reply: &Reply) {
    let text = serde_json::to_string(reply).expect("JSON");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{text}")
        .and_then(|()| out.flush())
        .expect("the test listens");
}

fn outcome(result: Result<f32, Error>) -> Reply {
    match result {
        Ok(sum) => Reply::Sum(sum),
        Err(error) => {
            let message = error.to_string();
            match error {
                Error::PeerLost { rank, .. } => Reply::Lost { rank, message },
                _ => Reply::Failed(message),
            }
        }
    }
}

fn reduce(session: &Session, name: Option<&str>, length: usize) -> Result<f32, Error> {
    let world = session.world();
    let mut tensor = vec![1.0f32; length];
    let call = match name {
        Some(name) => world.named(name),
        None => world.call(),
    };
    call.all_reduce(&mut tensor, ReduceOp::Sum)?;
    let first = tensor[0].to_bits();
    assert!(tensor.iter().all(|value| value.to_bits() == first));
    Ok(tensor[0])
}

fn start_reduce(session: &Session, name: &str, length: usize) -> Result<f32, Error> {
    let world = session.world();
    let tensor = vec![1.0f32; length];
    let tensor = world
        .named(name)
        .start_all_reduce(tensor, ReduceOp::Sum)?
        .wait()?;
    Ok(tensor[0])
}

/// Runs until the standard input ends.
pub(crate) fn run() {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stdout)
        .init();
    let fleet = std::env::var(FLEET).expect("a fleet");
    let slot: u16 = std::env::var(SLOT)
        .expect("a slot")
        .parse()
        .expect("a slot");
    let incarnation = u128::from_str_radix(&fleet, 16).expect("a number") + u128::from(slot);
    let id = PeerId::new("host-a", slot, incarnation);
    let bind = if std::env::var_os(TLS).is_some() {
        Peer::bind_tls
    } else {
        Peer::bind
    };
    let peer = bind(id, "processes", b"a token", IpAddr::V4(Ipv4Addr::LOCALHOST))
        .expect("a peer that listens");
    say(&Reply::Listening(Member {
        peer: peer.id().clone(),
        endpoint: peer.endpoint().clone(),
    }));
    let mut session: Option<Session> = None;
    for line in std::io::stdin().lock().lines() {
        let order: Order = serde_json::from_str(&line.expect("a line")).expect("an order");
        let joined = || session.as_ref().expect("a session");
        match order {
            Order::Form(membership, settings) => {
                drop(session.take());
                match peer.form(&membership, &settings.options()) {
                    Ok(formed) => {
                        session = Some(formed);
                        say(&Reply::Formed);
                    }
                    Err(error) => say(&Reply::Failed(error.to_string())),
                }
            }
            Order::AllReduce { name, length } => {
                say(&Reply::Calling);
                say(&outcome(reduce(joined(), Some(&name), length)));
            }
            Order::StartAllReduce { name, length } => {
                say(&Reply::Calling);
                say(&outcome(start_reduce(joined(), &name, length)));
            }
            Order::AllReduceForEver { length } => {
                let mut result = reduce(joined(), None, length);
                say(&Reply::Moving);
                while result.is_ok() {
                    result = reduce(joined(), None, length);
                }
                say(&outcome(result));
            }
            Order::Fork => say(&Reply::Forked(fork())),
        }
    }
}

/// Forks a child that keeps all descriptors and ends by itself after a while.
#[expect(unsafe_code, reason = "there is no safe fork")]
fn fork() -> i32 {
    // SAFETY: the child calls nothing but alarm and pause, which are safe after a fork.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(60);
            loop {
                libc::pause();
            }
        }
        child
    }
}
