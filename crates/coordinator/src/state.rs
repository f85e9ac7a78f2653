//! The pure state machine of a job with a fixed membership.
//!
//! Every method that changes something returns a [`Decision`]: what was decided and why, in words
//! that the log, the answer and the status share. Time comes in as a duration since the coordinator
//! began; nothing here reads a clock or opens a socket.

use std::time::Duration;

use carole_plan::{Endpoint, Generation, Member, Membership, PeerId};

use crate::decision::{Answer, Change, Decision, Refusal, Registration};
use crate::wire::{Lost, Outcome, Status};

/// The longest host name.
const MAX_HOST: usize = 255;
/// The most addresses an endpoint may list.
const MAX_ADDRESSES: usize = 64;
/// The longest text in an endpoint.
const MAX_ENDPOINT_TEXT: usize = 512;
/// The longest reason of a loss; a longer one is cut.
const MAX_REASON: usize = 4096;

/// One rank's place.
#[derive(Clone, Debug, Default)]
struct Slot {
    member: Option<Member>,
    left: bool,
}

/// A job's membership and how it came about.
#[derive(Clone, Debug)]
pub struct State {
    job: String,
    slots: Vec<Slot>,
    membership: Option<Membership>,
    lost: Vec<Lost>,
    first_registration: Option<Duration>,
}

impl State {
    /// A job of `size` ranks, none of which has registered.
    pub fn new(job: impl Into<String>, size: usize) -> Self {
        Self {
            job: job.into(),
            slots: vec![Slot::default(); size],
            membership: None,
            lost: Vec::new(),
            first_registration: None,
        }
    }

    /// How many ranks the job has.
    pub fn size(&self) -> usize {
        self.slots.len()
    }

    /// A peer asks for its rank. The membership is published when the last rank has registered.
    pub fn register(
        &mut self,
        now: Duration,
        peer: PeerId,
        rank: usize,
        endpoint: Endpoint,
    ) -> Decision<Registration> {
        let refuse = |refusal, reason| Decision::new(Registration::Refused(refusal), reason);
        let accept = |outcome, reason| Decision::new(Registration::Accepted(outcome), reason);

        if let Err(reason) = check(&peer, &endpoint) {
            return refuse(Refusal::Invalid, reason);
        }
        if let Err(reason) = self.check_rank(rank) {
            return refuse(Refusal::NoSuchRank, reason);
        }
        if let Some(holder) = &self.slots[rank].member {
            if holder.peer != peer {
                let reason = format!(
                    "rank {rank} is held by {:#}; {peer:#} cannot take it",
                    holder.peer
                );
                return refuse(Refusal::RankTaken, reason);
            }
            if holder.endpoint == endpoint {
                return accept(
                    Outcome::Repeated,
                    format!("rank {rank} had registered already"),
                );
            }
            if self.membership.is_some() {
                let reason = format!(
                    "rank {rank} ({peer}) is a member with another endpoint; a published \
                     membership does not change"
                );
                return refuse(Refusal::EndpointChanged, reason);
            }
            self.slots[rank].member = Some(Member { peer, endpoint });
            return accept(
                Outcome::Repeated,
                format!("rank {rank} changed its endpoint"),
            );
        }
        if let Some((other, holder)) = self.holder_of_slot(&peer) {
            let reason =
                format!("{holder:#} holds rank {other}; {peer:#} cannot take rank {rank} too");
            return refuse(Refusal::OtherRank, reason);
        }
        if let Some(reason) = self.cannot_form() {
            return refuse(Refusal::CannotForm, reason);
        }

        self.slots[rank].member = Some(Member { peer, endpoint });
        self.first_registration.get_or_insert(now);
        let missing = self.missing();
        if missing.is_empty() {
            let generation = Generation {
                term: 1,
                counter: 1,
            };
            let members = self
                .slots
                .iter()
                .filter_map(|slot| slot.member.clone())
                .collect();
            self.membership = Some(Membership {
                generation,
                members,
            });
            let reason = format!(
                "all {} ranks have registered: generation {generation}",
                self.size()
            );
            return accept(Outcome::Published, reason);
        }
        let reason = format!(
            "{} of {} ranks have registered; missing: {}",
            self.size() - missing.len(),
            self.size(),
            rank_list(&missing)
        );
        accept(Outcome::Waiting, reason)
    }

    /// An agent reports that a rank's process is gone. The first report of a rank counts.
    pub fn report_lost(
        &mut self,
        now: Duration,
        rank: usize,
        reason: &str,
        exit_code: Option<i32>,
    ) -> Decision<Change> {
        if let Err(reason) = self.check_rank(rank) {
            return Decision::new(Change::Refused(Refusal::NoSuchRank), reason);
        }
        if let Some(known) = self.lost.iter().find(|lost| lost.rank == rank) {
            return Decision::new(
                Change::Known,
                format!("rank {rank} was lost already: {}", known.reason),
            );
        }
        if self.slots[rank].left {
            return Decision::new(Change::Known, format!("rank {rank} had left already"));
        }
        let reason = cut(reason, MAX_REASON);
        let text = format!("rank {rank} is lost: {reason}");
        self.lost.push(Lost {
            sequence: self.lost.len() as u64 + 1,
            rank,
            peer: self.slots[rank]
                .member
                .as_ref()
                .map(|member| member.peer.clone()),
            reason: reason.to_owned(),
            exit_code,
            at_ms: now.as_millis() as u64,
        });
        Decision::new(Change::Recorded, text)
    }

    /// A peer says that it is done. Before the membership is published its rank becomes free again.
    pub fn leave(&mut self, peer: &PeerId) -> Decision<Change> {
        let Some(rank) = self.rank_of(peer) else {
            return Decision::new(
                Change::Refused(Refusal::NotRegistered),
                format!("{peer:#} is not registered"),
            );
        };
        let slot = &mut self.slots[rank];
        if self.membership.is_none() {
            slot.member = None;
            if self.slots.iter().all(|slot| slot.member.is_none()) {
                self.first_registration = None;
            }
            return Decision::new(
                Change::Recorded,
                format!("rank {rank} left before the membership was complete"),
            );
        }
        if std::mem::replace(&mut slot.left, true) {
            return Decision::new(Change::Known, format!("rank {rank} had left already"));
        }
        Decision::new(Change::Recorded, format!("rank {rank} left"))
    }

    /// What one who holds generation counter `after` gets.
    pub fn membership_after(&self, after: u32) -> Answer {
        match &self.membership {
            Some(membership) if membership.generation.counter > after => {
                Answer::Ready(membership.clone())
            }
            Some(_) => Answer::Wait,
            None => self.cannot_form().map_or(Answer::Wait, Answer::Never),
        }
    }

    /// Losses whose sequence number is above `after`.
    pub fn lost_after(&self, after: u64) -> &[Lost] {
        let known = usize::try_from(after)
            .unwrap_or(usize::MAX)
            .min(self.lost.len());
        &self.lost[known..]
    }

    /// When the first rank registered, as long as others are missing.
    pub fn waiting_since(&self) -> Option<Duration> {
        self.first_registration
            .filter(|_| self.membership.is_none())
    }

    /// Why the job should be given up: `limit` after the first rank registered others are missing.
    ///
    /// A job none of whose ranks registers is never overdue: its program does not use Carole.
    pub fn overdue(&self, now: Duration, limit: Duration) -> Option<String> {
        let since = self.waiting_since()?;
        (now.saturating_sub(since) >= limit).then(|| {
            let missing = self.missing();
            format!(
                "{} of {} ranks had not registered {:.1} s after the first did: {}",
                missing.len(),
                self.size(),
                limit.as_secs_f64(),
                rank_list(&missing)
            )
        })
    }

    /// The job at a glance.
    pub fn status(&self) -> Status {
        let ranks = |wanted: fn(&Slot) -> bool| {
            let slots = self.slots.iter().enumerate();
            slots
                .filter(|(_, slot)| wanted(slot))
                .map(|(rank, _)| rank)
                .collect()
        };
        Status {
            job: self.job.clone(),
            size: self.size(),
            registered: ranks(|slot| slot.member.is_some()),
            missing: self.missing(),
            left: ranks(|slot| slot.left),
            generation: self
                .membership
                .as_ref()
                .map(|membership| membership.generation),
            lost: self.lost.clone(),
        }
    }

    /// Ranks that have not registered.
    pub fn missing(&self) -> Vec<usize> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.member.is_none())
            .map(|(rank, _)| rank)
            .collect()
    }

    fn rank_of(&self, peer: &PeerId) -> Option<usize> {
        self.slots.iter().position(|slot| {
            slot.member
                .as_ref()
                .is_some_and(|member| &member.peer == peer)
        })
    }

    /// Who holds `peer`'s slot of its host: the peer itself or another incarnation.
    fn holder_of_slot(&self, peer: &PeerId) -> Option<(usize, &PeerId)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter_map(|(rank, slot)| Some((rank, &slot.member.as_ref()?.peer)))
            .find(|(_, holder)| holder.host == peer.host && holder.slot == peer.slot)
    }

    fn check_rank(&self, rank: usize) -> Result<(), String> {
        if rank < self.size() {
            return Ok(());
        }
        Err(format!(
            "there is no rank {rank}: the job has {} ranks, 0 to {}",
            self.size(),
            { self.size().saturating_sub(1) }
        ))
    }

    /// A fixed membership cannot become complete once one of its processes is gone.
    fn cannot_form(&self) -> Option<String> {
        let first = self.lost.first().filter(|_| self.membership.is_none())?;
        Some(format!(
            "the membership cannot become complete: rank {} was lost ({})",
            first.rank, first.reason
        ))
    }
}

/// Bounds what comes from the wire before it is kept.
fn check(peer: &PeerId, endpoint: &Endpoint) -> Result<(), String> {
    if peer.host.is_empty() || peer.host.len() > MAX_HOST {
        return Err(format!(
            "peer.host must have 1 to {MAX_HOST} bytes, not {}",
            peer.host.len()
        ));
    }
    if endpoint.addresses.len() > MAX_ADDRESSES {
        let count = endpoint.addresses.len();
        return Err(format!(
            "endpoint.addresses lists {count} of at most {MAX_ADDRESSES}"
        ));
    }
    if endpoint.addresses.is_empty() && endpoint.local.is_empty() {
        return Err("endpoint.addresses and endpoint.local are both empty".to_owned());
    }
    let certificate = endpoint.certificate.as_deref().unwrap_or_default();
    for (field, text) in [
        ("local", endpoint.local.as_str()),
        ("machine", endpoint.machine.as_str()),
        ("certificate", certificate),
    ] {
        if text.len() > MAX_ENDPOINT_TEXT {
            let length = text.len();
            return Err(format!(
                "endpoint.{field} has {length} of at most {MAX_ENDPOINT_TEXT} bytes"
            ));
        }
    }
    Ok(())
}

/// At most `limit` bytes of `text`, cut between characters.
fn cut(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Ranks for a person, runs joined: `ranks 0-2, 5`.
///
/// ```
/// assert_eq!(carole_coordinator::state::rank_list(&[0, 1, 2, 5]), "ranks 0-2, 5");
/// assert_eq!(carole_coordinator::state::rank_list(&[3]), "rank 3");
/// ```
pub fn rank_list(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let runs: Vec<String> = runs
        .into_iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            1 => format!("{first}, {last}"),
            _ => format!("{first}-{last}"),
        })
        .collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", runs.join(", "))
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
