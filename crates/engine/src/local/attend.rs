//! Bringing the members of one operation together.
//!
//! A member *attends* by posting its descriptor, with its payload where that is ready, and by
//! finding the others' postings of the same key. When all are there, everybody sees the same
//! descriptors, so that all members come to the same verdict.

use super::board::{Board, Place};
use super::member_table::MemberTable;
use super::{Party, Ticket, lane_window};
use crate::descriptor::Descriptor;
use crate::kernels::lines;
use crate::key::Key;

/// What an attendance came to.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The members ask for different things; who asked for what.
    Mismatch(Vec<(usize, Descriptor)>),
    /// The member with this session rank gave up.
    Aborted(usize),
}

/// What the postings of an operation come to, the same for every member that has seen all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    mine: Descriptor,
    agree: bool,
    /// Members that have no payload space.
    pending: usize,
    /// Members whose tensor lies in shared memory.
    arenas: usize,
    size: usize,
}

impl Verdict {
    fn new(size: usize, mine: Descriptor, place: Place) -> Self {
        let mut verdict = Self {
            mine,
            agree: true,
            pending: 0,
            arenas: 0,
            size,
        };
        verdict.count(place);
        verdict
    }

    fn count(&mut self, place: Place) {
        match place {
            Place::Pending => self.pending += 1,
            Place::Arena { .. } => self.arenas += 1,
            _ => {}
        }
    }

    /// Takes another member's posting into account, before it is acknowledged.
    pub(super) fn hear(&mut self, board: &Board, rank: usize, slot: u16) {
        let theirs = board.descriptor(rank, slot);
        self.agree &= theirs.is_some_and(|theirs| theirs.agrees_with(&self.mine));
        self.count(board.place(rank, slot).0);
    }

    fn is_shared(&self) -> bool {
        self.arenas == self.size
    }

    /// Tensors in shared memory help only if all are; else their owners need windows.
    fn needs_space(&self) -> bool {
        self.pending > 0 || self.arenas > 0 && !self.is_shared()
    }

    /// Whether the first member takes a lane, once all have come.
    pub(super) fn needs_lane(&self) -> bool {
        self.agree && self.needs_space()
    }
}

/// A lane that the first member may still be granted for a member that has given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenGrant {
    pub(super) first: usize,
    /// The first member's posting (slot, round), not acknowledged yet.
    pub(super) posting: Option<(u16, u32)>,
    pub(super) verdict: Verdict,
}

/// One member's attendance at one operation.
pub(crate) struct Attendance {
    key: Key,
    descriptor: Descriptor,
    ticket: Ticket,
    /// Members that have not been found yet, a bit each.
    missing: u64,
    /// Slots of the members that have been found.
    slots: MemberTable<u16>,
    /// The lane that this operation was granted.
    lane: Option<u32>,
    pending: bool,
    /// Every member's tensor lies in shared memory.
    shared: bool,
    polls: u32,
    ended: bool,
}

impl Attendance {
    /// Attends with a slot and payload space, without posting yet.
    #[inline]
    pub(crate) fn new(party: &Party<'_>, key: Key, descriptor: Descriptor, ticket: Ticket) -> Self {
        let everyone = if party.size() == 64 {
            u64::MAX
        } else {
            (1 << party.size()) - 1
        };
        Self {
            key,
            descriptor,
            ticket,
            missing: everyone & !(1 << party.me),
            slots: MemberTable::new(),
            lane: None,
            pending: false,
            shared: false,
            polls: 0,
            ended: false,
        }
    }

    /// Posts: from here on the other members find this one, with `staged` rounds ready.
    #[inline]
    pub(crate) fn post(&mut self, party: &Party<'_>, staged: u32, counted: bool) {
        let Ticket { slot, round, place } = self.ticket;
        let board = &party.local.board;
        board.fill(slot, self.key, &self.descriptor);
        board.publish(slot, round, place, staged, counted);
        self.pending = self.ticket.place == Place::Pending;
        party.wake_others();
    }

    /// Where this member's own payload goes.
    #[inline]
    pub(crate) fn place(&self) -> Place {
        match (self.ticket.place, self.lane) {
            (Place::Pending | Place::Arena { .. }, Some(lane)) => lane_window(lane),
            (place, _) => place,
        }
    }

    /// Whether all members' tensors lie in shared memory; known when all have come.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(crate) fn slot(&self) -> u16 {
        self.ticket.slot
    }

    /// Where a member's payload lies and how many rounds were ready when it posted.
    #[inline]
    pub(crate) fn place_of(&self, party: &Party<'_>, member: usize) -> (Place, u32) {
        let rank = usize::from(party.members[member]);
        match (
            party.local.board.place(rank, self.slots.get(member)),
            self.lane,
        ) {
            ((Place::Pending | Place::Arena { .. }, staged), Some(lane)) => {
                (lane_window(lane), staged)
            }
            (place, _) => place,
        }
    }

    /// The slot of a member that has been found.
    #[inline]
    pub(crate) fn slot_of(&self, member: usize) -> u16 {
        self.slots.get(member)
    }

    /// Slot and round of a member that has been found.
    #[inline]
    fn posting_of(&self, party: &Party<'_>, member: usize) -> (u16, u32) {
        let slot = self.slots.get(member);
        let rank = party.members[member].into();
        (slot, party.local.board.round(rank, slot))
    }

    /// A number of the operation that is the same for all members, and new with every attempt:
    /// where the first member has posted. To be asked when all have come.
    pub(crate) fn number(&self, party: &Party<'_>) -> (u16, u32) {
        match party.me {
            0 => (self.ticket.slot, self.ticket.round),
            _ => self.posting_of(party, 0),
        }
    }

    /// Has the next poll look at all slots of the members that are missing.
    pub(crate) fn look_everywhere(&mut self) {
        self.polls = 15;
    }

    /// Whether a member, by session rank, has not posted: looked up thoroughly.
    pub(crate) fn lacks(&self, party: &Party<'_>, rank: usize) -> bool {
        let Some(member) = party.ranks.iter().position(|known| *known == rank) else {
            return false;
        };
        let local = usize::from(party.members[member]);
        let consumed = |slot| party.local.consumed(local, slot);
        self.missing >> member & 1 == 1
            && party
                .local
                .board
                .find(local, self.key, true, consumed)
                .is_none()
    }

    /// Whether all members have come.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Whether a member that is missing, or any when all have come, was last seen on this core.
    pub(crate) fn awaits_core(&self, party: &Party<'_>, core: u32) -> bool {
        (0..party.size())
            .filter(|m| *m != party.me && (self.missing == 0 || self.missing >> m & 1 == 1))
            .any(|m| party.local.board.is_on_core(party.members[m].into(), core))
    }

    /// Members that have not arrived, as session ranks.
    pub(crate) fn absent(&self, party: &Party<'_>) -> Vec<usize> {
        (0..party.size())
            .filter(|m| self.missing >> m & 1 == 1)
            .map(|m| party.ranks[m])
            .collect()
    }

    /// Looks for members; true when all are there, agree, and have payload space.
    #[inline]
    pub(crate) fn poll(&mut self, party: &Party<'_>) -> Result<bool, Failure> {
        if self.missing != 0 {
            let everywhere = self.polls % 16 == 15;
            self.polls = self.polls.wrapping_add(1);
            let mut left = self.missing;
            while left != 0 {
                let member = left.trailing_zeros() as usize;
                left &= left - 1;
                let rank = usize::from(party.members[member]);
                let consumed = |slot| party.local.consumed(rank, slot);
                if let Some(found) = party.local.board.find(rank, self.key, everywhere, consumed) {
                    self.slots.set(member, found.slot);
                    self.missing &= !(1 << member);
                    if found.aborted {
                        return Err(Failure::Aborted(party.ranks[member]));
                    }
                }
            }
            if self.missing != 0 {
                return Ok(false);
            }
            self.verdict(party)?;
        }
        if self.pending && self.lane.is_none() {
            return Ok(self.poll_lane(party));
        }
        Ok(true)
    }

    fn verdict(&mut self, party: &Party<'_>) -> Result<(), Failure> {
        let verdict = self.look(party);
        self.shared = verdict.is_shared();
        self.pending = verdict.needs_space();
        if verdict.agree {
            Ok(())
        } else {
            Err(Failure::Mismatch(
                party.asked(&self.slots, &self.descriptor),
            ))
        }
    }

    /// What the members that have come ask for.
    fn look(&self, party: &Party<'_>) -> Verdict {
        let mut verdict = Verdict::new(party.size(), self.descriptor, self.ticket.place);
        for member in (0..party.size()).filter(|m| *m != party.me && self.missing >> m & 1 == 0) {
            verdict.hear(
                &party.local.board,
                party.members[member].into(),
                self.slots.get(member),
            );
        }
        verdict
    }

    /// The first member takes a lane; the others learn which.
    fn poll_lane(&mut self, party: &Party<'_>) -> bool {
        let board = &party.local.board;
        if party.me == 0 {
            if let Some(lane) = board.take_lane(party.size()) {
                board.grant_lane(self.ticket.slot, lane);
                self.lane = Some(lane);
                party.wake_others();
            }
        } else {
            self.lane = board.granted_lane(party.members[0].into(), self.slots.get(0));
        }
        self.lane.is_some()
    }

    /// Whether some member that had arrived gave up since.
    pub(crate) fn someone_aborted(&self, party: &Party<'_>) -> Option<usize> {
        (0..party.size())
            .filter(|m| *m != party.me && self.missing >> m & 1 == 0)
            .find(|m| {
                party
                    .local
                    .board
                    .is_aborted(party.members[*m].into(), self.slots.get(*m))
            })
            .map(|m| party.ranks[m])
    }

    /// Ends the operation on this rank: its peers' postings are not needed any more.
    #[inline]
    pub(crate) fn finish(&mut self, party: &Party<'_>) {
        self.end(party, false);
    }

    #[inline]
    fn end(&mut self, party: &Party<'_>, keep_first: bool) {
        self.ended = true;
        if party.size() == 2 && self.missing == 0 && lines::are_handed_back() {
            let other = 1 - party.me;
            party
                .local
                .board
                .hand_slot_back(party.members[other].into(), self.slots.get(other));
        }
        for member in usize::from(keep_first)..party.size() {
            if member != party.me && self.missing >> member & 1 == 0 {
                let rank = usize::from(party.members[member]);
                let (slot, round) = self.posting_of(party, member);
                party.local.acknowledge(rank, slot, round);
            }
        }
        if let Some(lane) = self.lane {
            party.local.board.leave_lane(lane);
        }
        party.local.close(self.ticket.slot);
    }

    /// Gives the operation up: the others see it, and whoever comes later is acknowledged unread.
    ///
    /// A `quiet` end is not shown to the others: they learn of a lost member by themselves.
    pub(crate) fn abort(&mut self, party: &Party<'_>, quiet: bool) {
        if self.ended {
            return;
        }
        if !quiet {
            party.local.board.abort(self.ticket.slot, self.ticket.round);
        }
        // Whether the first member still takes a lane for us is open: its posting is kept until
        // that is known.
        let mut grant = None;
        if party.me != 0 && self.lane.is_none() {
            let verdict = self.look(party);
            grant = (self.missing != 0 || verdict.needs_lane()).then(|| OpenGrant {
                first: party.members[0].into(),
                posting: (self.missing & 1 == 0).then(|| self.posting_of(party, 0)),
                verdict,
            });
        }
        self.end(party, grant.is_some());
        let mut owed = 0;
        for member in 0..party.size() {
            if self.missing >> member & 1 == 1 {
                owed |= 1u64 << party.members[member];
            }
        }
        party.local.owe(self.key, owed, grant);
        party.wake_others();
    }
}
