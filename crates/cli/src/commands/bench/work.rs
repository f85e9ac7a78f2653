//! One operation with its tensors: running it, timing it, and checking what came out.

use std::time::Instant;

use carole_engine::{Call, Group, ReduceOp, Result};

use super::buffer::{Buffer, Place, Source};
use super::operation::{Layout, Operation, ROOT};
use super::pattern::{Pattern, Value, fill, holds};

/// The name of unnamed messages: sending always needs one.
const MESSAGE: &str = "bench";

/// What a case works on, apart from where its tensors lie.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) operation: Operation,
    pub(super) op: ReduceOp,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// Elements, counted as the command line's sizes are.
    pub(super) count: usize,
    /// The lengths of a list's tensors; empty for a single tensor.
    pub(super) list: Vec<usize>,
}

impl Shape {
    pub(super) fn layout(&self) -> Layout {
        Layout::new(self.operation, self.count, self.ranks)
    }

    /// The elements that this rank gives.
    pub(super) fn given(&self) -> usize {
        if self.list.is_empty() {
            self.layout().send(self.rank)
        } else {
            self.list.iter().sum()
        }
    }

    /// The elements that the algorithm bandwidth counts.
    pub(super) fn counted(&self) -> usize {
        if self.list.is_empty() {
            self.layout().counted()
        } else {
            self.list.iter().sum()
        }
    }
}

/// The tensors of one rank, and what is done with them.
pub(super) struct Work<T> {
    shape: Shape,
    layout: Layout,
    send: Buffer<T>,
    recv: Buffer<T>,
    list: Vec<Buffer<T>>,
}

impl<T: Value> Work<T> {
    /// Takes memory for `shape`, the number `i` of its tensors placed at `place(i)`.
    pub(super) fn new(
        shape: &Shape,
        source: &Source,
        mut place: impl FnMut(usize) -> Place,
    ) -> Result<Self> {
        let layout = shape.layout();
        let single = shape.list.is_empty();
        let sent = if single { layout.send(shape.rank) } else { 0 };
        let mut list = Vec::with_capacity(shape.list.len());
        for (index, length) in shape.list.iter().enumerate() {
            list.push(Buffer::new(*length, place(index), source)?);
        }
        Ok(Self {
            send: Buffer::new(sent, place(0), source)?,
            recv: Buffer::new(layout.recv(shape.rank), place(1), source)?,
            list,
            layout,
            shape: shape.clone(),
        })
    }

    /// Runs the operation `batch` times after a barrier; seconds for one. With names, each run has
    /// its own.
    pub(super) fn time(&mut self, group: &Group, names: &[String], batch: usize) -> Result<f64> {
        let Self {
            shape,
            layout,
            send,
            recv,
            list,
        } = self;
        let (op, rank, ranks) = (shape.op, shape.rank, shape.ranks);
        let (send, recv) = (send.as_mut_slice(), recv.as_mut_slice());
        let batch = Batch {
            group,
            names,
            count: batch,
        };
        match shape.operation {
            Operation::AllReduce if !list.is_empty() => {
                let mut list: Vec<&mut [T]> = list.iter_mut().map(Buffer::as_mut_slice).collect();
                batch.time(|call, _| call.all_reduce_list(&mut list, op))
            }
            Operation::AllReduce => batch.time(|call, _| call.all_reduce(send, op)),
            Operation::Reduce => batch.time(|call, _| call.reduce(send, op, ROOT)),
            Operation::Broadcast => batch.time(|call, _| call.broadcast(send, ROOT)),
            Operation::ReduceScatter => batch.time(|call, _| call.reduce_scatter(send, recv, op)),
            Operation::AllGather => batch.time(|call, _| call.all_gather(send, recv)),
            Operation::AllGatherV => {
                batch.time(|call, _| call.all_gather_v(send, recv, &layout.counts))
            }
            Operation::Gather => batch.time(|call, _| call.gather(send, recv, ROOT)),
            Operation::Scatter => batch.time(|call, _| call.scatter(send, recv, ROOT)),
            Operation::AllToAll => batch.time(|call, _| call.all_to_all(send, recv)),
            Operation::Barrier => batch.time(|call, _| call.barrier()),
            Operation::SendRecv => {
                let (next, previous) = neighbours(rank, ranks);
                // Every other rank receives first, so that no circle of senders waits.
                if rank.is_multiple_of(2) {
                    batch.time(|_, name| {
                        group.send(next, name, send)?;
                        group.recv(previous, name, recv)
                    })
                } else {
                    batch.time(|_, name| {
                        group.recv(previous, name, recv)?;
                        group.send(next, name, send)
                    })
                }
            }
        }
    }

    /// Fills the tensors with what the check expects to find combined or moved.
    pub(super) fn fill(&mut self, pattern: &Pattern<T>) {
        let Shape {
            operation, rank, ..
        } = self.shape;
        let table = if operation.reduces() {
            pattern.given(rank)
        } else {
            Pattern::moved(rank)
        };
        fill(self.send.as_mut_slice(), 0, &table);
        for (index, tensor) in self.list.iter_mut().enumerate() {
            fill(tensor.as_mut_slice(), index, &table);
        }
        // What no rank gives: left in place, it is noticed.
        self.recv.as_mut_slice().fill(T::whole(113));
    }

    /// Whether every element is right after one run on what [`Work::fill`] wrote.
    pub(super) fn is_right(&self, pattern: &Pattern<T>) -> bool {
        let Shape {
            operation,
            rank,
            ranks,
            ..
        } = self.shape;
        let part = self.layout.part;
        let (send, recv) = (self.send.as_slice(), self.recv.as_slice());
        match operation {
            Operation::Barrier => true,
            Operation::AllReduce => {
                let list = self.list.iter().enumerate();
                pattern.is_combined(send, 0)
                    && list
                        .into_iter()
                        .all(|(i, one)| pattern.is_combined(one.as_slice(), i))
            }
            Operation::Reduce if rank == ROOT => pattern.is_combined(send, 0),
            Operation::Reduce => holds(send, 0, &pattern.given(rank)),
            Operation::ReduceScatter => pattern.is_combined(recv, rank * part),
            Operation::Broadcast => holds(send, 0, &Pattern::moved(ROOT)),
            Operation::Scatter => holds(recv, rank * part, &Pattern::moved(ROOT)),
            Operation::Gather if rank != ROOT => recv.is_empty(),
            Operation::Gather | Operation::AllGather => {
                (0..ranks).all(|from| holds(&recv[from * part..][..part], 0, &Pattern::moved(from)))
            }
            Operation::AllGatherV => {
                let mut rest = recv;
                self.layout.counts.iter().enumerate().all(|(from, count)| {
                    let (own, behind) = rest.split_at(*count);
                    rest = behind;
                    holds(own, 0, &Pattern::moved(from))
                })
            }
            Operation::AllToAll => (0..ranks).all(|from| {
                holds(
                    &recv[from * part..][..part],
                    rank * part,
                    &Pattern::moved(from),
                )
            }),
            Operation::SendRecv => holds(recv, 0, &Pattern::moved(neighbours(rank, ranks).1)),
        }
    }

    /// Zeros everywhere: sums of zeros stay zeros, however often they are repeated.
    pub(super) fn clear(&mut self) {
        let list = self.list.iter_mut();
        for tensor in list.chain([&mut self.send, &mut self.recv]) {
            tensor.as_mut_slice().fill(T::default());
        }
    }
}

/// The next rank and the one before, in a circle.
fn neighbours(rank: usize, ranks: usize) -> (usize, usize) {
    ((rank + 1) % ranks, (rank + ranks - 1) % ranks)
}

/// Calls back to back.
struct Batch<'a> {
    group: &'a Group,
    names: &'a [String],
    count: usize,
}

impl Batch<'_> {
    /// Nothing is allocated between the two looks at the clock, save by the engine.
    #[inline]
    fn time(self, mut once: impl FnMut(Call<'_>, &str) -> Result<()>) -> Result<f64> {
        let Self {
            group,
            names,
            count,
        } = self;
        group.call().barrier()?;
        let start = Instant::now();
        if names.is_empty() {
            for _ in 0..count {
                once(group.call(), MESSAGE)?;
            }
        } else {
            for name in &names[..count] {
                once(group.named(name), name)?;
            }
        }
        Ok(start.elapsed().as_secs_f64() / count as f64)
    }
}
