//! Hearing of losses from the coordinator.
//!
//! Peers on one host learn of a death from the kernel; across hosts a dead process's agent tells
//! the coordinator, and the thread here, which asks it all the time, tells the session.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use carole_coordinator::Client;
use carole_coordinator::wire::Lost;
use carole_engine::Session;

/// How long one question is held.
const POLL: Duration = Duration::from_secs(20);
/// Pause after an answer that was no answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread. It holds the session weakly and ends, at the next answer, when that is gone.
pub(crate) fn start(client: Client, session: &Arc<Session>) -> io::Result<()> {
    let session = Arc::downgrade(session);
    let builder = std::thread::Builder::new().name("carole-losses".into());
    builder.spawn(move || watch(&client, &session))?;
    Ok(())
}

fn watch(client: &Client, session: &Weak<Session>) {
    let mut after = 0;
    while session.strong_count() > 0 {
        match client.wait_lost(after, POLL) {
            Ok(losses) => {
                for lost in losses {
                    after = after.max(lost.sequence);
                    let Some(session) = session.upgrade() else {
                        return;
                    };
                    report(&session, &lost);
                }
            }
            Err(error) => {
                // The generation goes on while the coordinator is away.
                tracing::debug!(%error, "no word of losses from the coordinator");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Tells the session of a loss, unless the lost peer is no member of it.
fn report(session: &Session, lost: &Lost) {
    let rank = match &lost.peer {
        Some(peer) => session.peers().iter().position(|member| member == peer),
        None => Some(lost.rank),
    };
    if let Some(rank) = rank.filter(|rank| *rank != session.rank()) {
        session.report_lost(rank, &lost.reason);
    }
}
