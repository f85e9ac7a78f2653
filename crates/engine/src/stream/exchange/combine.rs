//! What arrives in rings becomes a result.

#![expect(unsafe_code, reason = "spans and rings are handed to kernels")]

use super::{Exchange, Form, Results, Sources};
use crate::kernels::{self, Destination, Store};
use crate::local::reduce::Combine;
use crate::span::Span;
use crate::stream::Streams;
use crate::stream::frame::FrameKind;
use crate::stream::inbox::Flows;

/// Contributions are combined in blocks of at least this many bytes, except at the end.
pub(super) const BLOCK: u64 = 16 << 10;

impl Exchange {
    /// Combines what all contributors have delivered; true when anything was.
    pub(super) fn combine(&mut self, streams: &Streams, flows: &Flows) -> bool {
        let (combine, flat_elsewhere) = match self.form {
            Form::Segmented { combine, .. } => (combine, false),
            Form::Flat { combine, to } => (combine, to.is_some_and(|to| to != self.me)),
            _ => return false,
        };
        let (own, total) = self.own();
        let total = total as u64;
        if flat_elsewhere {
            self.combined = total;
            return false;
        }
        // In place, what is sent must be gone before it is overwritten.
        if matches!(self.form, Form::Flat { .. })
            && self.out.iter().any(|out| out[0].sent < out[0].total)
        {
            return false;
        }
        let size = combine.dtype.size() as u64;
        let mut any = false;
        while self.combined < total {
            let ready = flows
                .flows
                .iter()
                .map(|f| f.stages[0].received())
                .min()
                .unwrap_or(total);
            let mut bytes = (ready - self.combined) / size * size;
            let inside = self.combined % self.ring.max(1) as u64;
            bytes = bytes.min(self.ring as u64 - inside);
            if bytes == 0
                || (bytes < BLOCK
                    && self.combined + bytes < total
                    && inside + bytes < self.ring as u64)
            {
                break;
            }
            self.combine_block(combine, own, self.combined, inside as usize, bytes as usize);
            self.combined += bytes;
            any = true;
            self.give_credit(streams, flows, total);
        }
        if let Form::Segmented { .. } = self.form {
            for out in &mut self.out {
                out[1].available = self.combined.min(out[1].total);
            }
        }
        any
    }

    fn combine_block(
        &mut self,
        combine: Combine,
        own: usize,
        done: u64,
        inside: usize,
        bytes: usize,
    ) {
        let members = self.ranks.len();
        let me = self.me;
        let keep = matches!(
            self.form,
            Form::Segmented {
                results: Results::Keep,
                ..
            }
        );
        let recv_at = if keep { 0 } else { own } + done as usize;
        let Sources {
            bases,
            now: sources,
        } = &mut self.sources;
        bases.clear();
        let mut ring = self.scratch.as_ptr().wrapping_add(inside);
        for member in 0..members {
            if member == me {
                bases.push(std::ptr::null());
            } else {
                bases.push(ring);
                ring = ring.wrapping_add(self.ring);
            }
        }
        let mut send = self.send;
        sources.clone_from(bases);
        let (mut recv, recv_at) = if self.passes_on {
            (Span::one(self.scratch.as_mut_ptr(), self.ring), inside)
        } else {
            (self.recv, recv_at)
        };
        recv.visit(recv_at, bytes, |target, distance, length| {
            send.visit(
                own + done as usize + distance,
                length,
                |mine, inner, length| {
                    for member in 0..members {
                        sources[member] = bases[member].wrapping_add(distance + inner);
                    }
                    sources[me] = mine;
                    let destination = Destination {
                        pointer: target.wrapping_add(inner),
                        store: Store::Cached,
                    };
                    // SAFETY: the spans vouch for `mine` and the target, which are equal or disjoint;
                    // the rings hold `length` bytes that have arrived and are not overwritten before
                    // credit is given.
                    unsafe {
                        kernels::reduce(
                            combine.dtype,
                            combine.op,
                            combine.scale,
                            combine.divisor,
                            &[destination],
                            sources,
                            length / combine.dtype.size(),
                        );
                    }
                },
            );
        });
    }

    /// Lets contributors send on when a good part of the ring is free.
    pub(super) fn give_credit(&self, streams: &Streams, flows: &Flows, total: u64) {
        for (index, flow) in flows.flows.iter().enumerate() {
            // The first ring's memory is free when the result in it has been passed on.
            let free = if self.passes_on && index == 0 {
                self.out.iter().map(|out| out[1].sent).max().unwrap_or(0)
            } else {
                self.combined
            };
            let upto = (free + self.ring as u64).min(total);
            let stage = &flow.stages[0];
            let announced = stage.announced();
            if announced < upto && (upto - announced >= self.ring as u64 / 4 || upto == total) {
                stage.announce(upto);
                let mut frame = streams.frame(FrameKind::Credit, self.key);
                frame.offset = upto;
                // A broken connection is found by reading it.
                let _ = streams.send(flow.rank, &frame, &[]);
            }
        }
    }
}
