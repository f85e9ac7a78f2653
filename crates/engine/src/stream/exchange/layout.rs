//! Which bytes go where: the flows of an exchange in both directions.

use std::sync::Arc;

use super::{Exchange, Form, Outflow, Results};
use crate::span::Span;
use crate::stream::inbox::{Flow, Flows, Intake};

/// Memory for all rings of an operation.
pub(super) const RINGS: usize = 4 << 20;
const RING_MAX: usize = 1 << 20;

impl Exchange {
    /// Lays out the flows in both directions.
    pub(super) fn open(&mut self) -> Arc<Flows> {
        let peers = self.ranks.len() - 1;
        let own = self.own();
        self.passes_on = matches!(
            self.form,
            Form::Segmented { results: Results::To(root), .. } if root != self.me
        );
        if matches!(self.form, Form::Segmented { .. } | Form::Flat { .. }) {
            let limit = (RINGS / peers).min(RING_MAX) & !63;
            self.ring = own.1.min(limit).next_multiple_of(64);
            if matches!(self.form, Form::Flat { .. }) {
                self.ring = own.1.next_multiple_of(64);
            }
            let bytes = self.ring * peers;
            if self.scratch.len() < bytes {
                self.scratch.resize(bytes, 0);
            }
        }
        // Nobody else holds the flows of an operation that is over, or only for a moment.
        let mut kept = self
            .spare
            .take()
            .filter(|spare| Arc::strong_count(spare) == 1)
            .unwrap_or_else(|| Arc::new(Flows::new(self.key, Vec::with_capacity(peers))));
        let Some(into) = Arc::get_mut(&mut kept) else {
            unreachable!("flows that nobody else holds");
        };
        let flows = into.renew(self.key);
        let first_ring = rings_first(&mut self.scratch, self.ring);
        let mut rings = self.scratch.chunks_mut(self.ring.max(1));
        self.out.clear();
        for member in (0..self.ranks.len()).filter(|member| *member != self.me) {
            let mut intakes = [Intake::NONE; 2];
            let mut out = [Outflow::NONE; 2];
            let mut ring = |bytes: usize| {
                let span = rings
                    .next()
                    .map_or(Span::EMPTY, |ring| Span::one(ring.as_mut_ptr(), ring.len()));
                Intake {
                    span,
                    base: 0,
                    capacity: span.bytes(),
                    total: bytes as u64,
                }
            };
            match self.form {
                Form::Meet => {}
                Form::Copy { outgoing, incoming } => {
                    let (at, bytes) = outgoing.of(member);
                    out[0] = Outflow::new(self.send, at, bytes, true);
                    let (base, bytes) = incoming.of(member);
                    intakes[0] = Intake {
                        span: self.recv,
                        base,
                        capacity: bytes,
                        total: bytes as u64,
                    };
                }
                Form::Flat { to, .. } => {
                    if to.is_none_or(|to| to == member) {
                        out[0] = Outflow::new(self.send, 0, self.send.bytes(), true);
                    }
                    if to.is_none_or(|to| to == self.me) {
                        intakes[0] = ring(own.1);
                    }
                }
                Form::Segmented {
                    segments, results, ..
                } => {
                    let (at, bytes) = segments.of(member);
                    out[0] = Outflow::new(self.send, at, bytes, true);
                    intakes[0] = ring(own.1);
                    if self.passes_on && results == Results::To(member) {
                        out[1] = Outflow::new(Span::EMPTY, 0, own.1, false);
                    } else if results == Results::All || results == Results::To(member) {
                        out[1] = Outflow::new(self.recv, own.0, own.1, false);
                    }
                    if results == Results::All || results == Results::To(self.me) {
                        intakes[1] = Intake {
                            span: self.recv,
                            base: at,
                            capacity: bytes,
                            total: bytes as u64,
                        };
                    }
                }
            }
            flows.push(Flow::new(self.ranks[member], intakes));
            self.out.push(out);
        }
        if self.passes_on {
            for out in &mut self.out {
                out[1].span = first_ring;
            }
        }
        kept
    }
}

/// The memory of the first ring.
fn rings_first(scratch: &mut [u8], ring: usize) -> Span {
    Span::one(scratch.as_mut_ptr(), ring.min(scratch.len()))
}
