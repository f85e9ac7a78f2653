//! `--transport memory`: ranks that are threads of this process.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, anyhow};
use carole_engine::Peer;
use carole_launch::random::{random_incarnation, random_token};
use carole_plan::{Generation, Member, Membership, PeerId};

use super::measurement::Measurement;
use super::member::{options, take_part};
use super::plan::Plan;

/// Measures with `ranks` threads; `report` gets the results.
pub(super) fn run(
    plan: &Plan,
    ranks: usize,
    report: &mut (dyn FnMut(Measurement) -> anyhow::Result<()> + Send),
) -> anyhow::Result<()> {
    let token = random_token()?;
    let mut peers = Vec::with_capacity(ranks);
    for slot in 0..ranks {
        let id = PeerId::new("localhost", slot as u16, random_incarnation()?);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        peers.push(Peer::bind(id, "bench", token.as_bytes(), address)?);
    }
    let member = |peer: &Peer| Member {
        peer: peer.id().clone(),
        endpoint: peer.endpoint().clone(),
    };
    let membership = Membership {
        generation: Generation {
            term: 1,
            counter: 1,
        },
        members: peers.iter().map(member).collect(),
    };
    let mut report = Some(report);
    std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(ranks);
        for (rank, peer) in peers.iter().enumerate() {
            // Rank 0 alone has results.
            let report = report.take();
            let membership = &membership;
            handles.push(scope.spawn(move || {
                let session = peer.form(membership, &options(plan))?;
                let result = match report {
                    Some(report) => take_part(&session, plan, report),
                    None => take_part(&session, plan, &mut |_| Ok(())),
                };
                result.with_context(|| format!("rank {rank} failed"))
            }));
        }
        let mut failure = Ok(());
        for handle in handles {
            let result = handle
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a rank panicked")));
            failure = failure.and(result);
        }
        failure
    })
}
