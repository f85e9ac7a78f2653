//! Which of the engine's ways an operation takes, with its spans and parts.

#![expect(unsafe_code, reason = "spans of the request are handed to kernels")]

use std::sync::Arc;

use super::{Body, Request};
use crate::choice::Choice;
use crate::descriptor::{Descriptor, Kind};
use crate::dtype::ReduceOp;
use crate::group::GroupInner;
use crate::hierarchy::Hierarchy;
use crate::kernels::{self, Destination, Store};
use crate::key::Key;
use crate::local::reduce::{Combine, Reduce};
use crate::local::transfer::{Parts, Sink, Transfer};
use crate::session::Inner;
use crate::span::Span;
use crate::stream::compressed::Compressed;
use crate::stream::exchange::{Exchange, Form, Results, copy_spans};

/// A reduction with nobody else: scales only.
pub(crate) fn reduce_alone(mut send: Span, mut recv: Span, bytes: usize, combine: Combine) {
    let Combine {
        dtype,
        op,
        scale,
        divisor,
    } = combine;
    send.visit(0, bytes, |source, distance, length| {
        recv.visit(distance, length, |target, inside, length| {
            let source = source.wrapping_add(inside).cast_const();
            let destination = Destination {
                pointer: target,
                store: Store::Cached,
            };
            // SAFETY: both spans vouch for their memory; they are the same or disjoint.
            unsafe {
                kernels::reduce(
                    dtype,
                    op,
                    scale,
                    divisor,
                    &[destination],
                    &[source],
                    length / dtype.size(),
                );
            }
        });
    });
}

/// An operation of a group of one.
pub(super) fn alone(request: &Request) {
    let Request {
        kind,
        dtype,
        op,
        scale,
        send,
        recv,
        ..
    } = *request;
    if kind.reduces() {
        reduce_alone(
            send,
            recv,
            recv.bytes(),
            Combine {
                dtype,
                op,
                scale,
                divisor: 1,
            },
        );
    } else if kind != Kind::Barrier {
        let (from, length) = match kind {
            Kind::AllToAllV | Kind::Scatter => request.send_parts.of(0),
            _ => (0, send.bytes()),
        };
        let (to, room) = match kind {
            Kind::AllToAllV | Kind::AllGatherV => request.recv_parts.of(0),
            _ => (0, recv.bytes()),
        };
        copy_spans(send, from, recv, to, length.min(room));
    }
}

/// The way an operation goes when members are on several hosts.
pub(super) fn remote_body(
    inner: &Inner,
    group: &GroupInner,
    key: Key,
    descriptor: Descriptor,
    request: &Request,
    choice: Choice,
) -> Body {
    let members = group.size();
    let me = group.me;
    let Request {
        kind,
        root,
        send,
        recv,
        ..
    } = *request;
    let combine = request.combine(members);
    let whole = send.bytes();
    if choice == Choice::Compressed {
        let ranks = Arc::clone(&group.ranks);
        let spans = (send, recv);
        let (codec, all) = (request.codec, (0, whole));
        let compressed = Compressed::new(key, descriptor, codec, combine, spans, all, ranks, me);
        return Body::Compressed(Box::new(compressed));
    }
    let form = match kind {
        Kind::Barrier | Kind::Consensus => Form::Meet,
        Kind::AllReduce | Kind::Reduce => {
            let to = (kind == Kind::Reduce).then_some(root);
            if choice == Choice::ExchangeFlat {
                Form::Flat { combine, to }
            } else {
                if choice == Choice::Hierarchy
                    && let Some(hierarchy) =
                        Hierarchy::new(inner, group, key, descriptor, request, combine)
                {
                    return Body::Hierarchy(inner.hierarchies.place(hierarchy));
                }
                let segments = request.send_parts;
                let results = to.map_or(Results::All, Results::To);
                Form::Segmented {
                    combine,
                    segments,
                    results,
                }
            }
        }
        Kind::ReduceScatter => Form::Segmented {
            combine,
            segments: request.send_parts,
            results: Results::Keep,
        },
        Kind::Broadcast | Kind::Transfer => {
            let (outgoing, incoming) = if me == root {
                (Parts::Whole(whole), Parts::None)
            } else {
                (Parts::None, Parts::Only(root, recv.bytes()))
            };
            Form::Copy { outgoing, incoming }
        }
        Kind::AllGather | Kind::AllGatherV => Form::Copy {
            outgoing: Parts::Whole(whole),
            incoming: request.recv_parts,
        },
        Kind::Gather => Form::Copy {
            outgoing: Parts::Only(root, whole),
            incoming: if me == root {
                request.recv_parts
            } else {
                Parts::None
            },
        },
        Kind::Scatter => Form::Copy {
            outgoing: if me == root {
                request.send_parts
            } else {
                Parts::None
            },
            incoming: Parts::Only(root, recv.bytes()),
        },
        Kind::AllToAll | Kind::AllToAllV => Form::Copy {
            outgoing: request.send_parts,
            incoming: request.recv_parts,
        },
    };
    let ranks = Arc::clone(&group.ranks);
    let exchange = Exchange::new(key, descriptor, form, send, recv, ranks, me);
    Body::Exchange(match &inner.streams {
        Some(streams) => Exchange::shelved(streams, exchange),
        None => Box::new(exchange),
    })
}

/// The way an operation goes when all members share a host.
#[inline]
pub(super) fn local_body(group: &GroupInner, request: &Request, choice: Choice) -> Body {
    let members = group.size();
    let me = group.me;
    let everyone = if members == 64 {
        u64::MAX
    } else {
        (1 << members) - 1
    };
    let others = everyone & !(1 << me);
    let Request {
        kind,
        dtype,
        op,
        scale,
        root,
        send,
        recv,
        ..
    } = *request;
    let divisor = if op == ReduceOp::Average {
        members as u32
    } else {
        1
    };
    let sink = Sink::Reduce {
        dtype,
        op,
        scale,
        divisor,
    };
    let transfer = |common, outgoing, readers, incoming, sink| {
        Body::Transfer(Transfer::new(
            send, recv, common, outgoing, readers, incoming, sink,
        ))
    };
    match kind {
        Kind::Barrier => Body::Meet,
        Kind::AllReduce | Kind::Reduce => {
            let bytes = send.bytes();
            let only = (kind == Kind::Reduce).then_some(root);
            match choice {
                Choice::TwoPhase { chunk } => Body::Reduce(Reduce::new(
                    send,
                    recv,
                    Combine {
                        dtype,
                        op,
                        scale,
                        divisor,
                    },
                    only,
                    chunk,
                )),
                _ if only.is_none() => {
                    transfer(true, Parts::Whole(bytes), others, Parts::Whole(bytes), sink)
                }
                _ if only == Some(me) => {
                    transfer(true, Parts::Whole(bytes), 0, Parts::Whole(bytes), sink)
                }
                _ => transfer(
                    true,
                    Parts::Whole(bytes),
                    1 << root,
                    Parts::None,
                    Sink::Copy,
                ),
            }
        }
        Kind::ReduceScatter => {
            let mine = request.send_parts.of(me).1;
            transfer(false, request.send_parts, others, Parts::Whole(mine), sink)
        }
        Kind::Broadcast => {
            let (outgoing, readers) = if me == root {
                (Parts::Whole(send.bytes()), others)
            } else {
                (Parts::None, 0)
            };
            let incoming = if me == root {
                Parts::None
            } else {
                Parts::Only(root, recv.bytes())
            };
            transfer(true, outgoing, readers, incoming, Sink::Copy)
        }
        Kind::AllGather | Kind::AllGatherV => transfer(
            true,
            Parts::Whole(send.bytes()),
            others,
            request.recv_parts,
            Sink::Copy,
        ),
        Kind::Gather => {
            let readers = if me == root { 0 } else { 1 << root };
            let incoming = if me == root {
                request.recv_parts
            } else {
                Parts::None
            };
            transfer(
                true,
                Parts::Whole(send.bytes()),
                readers,
                incoming,
                Sink::Copy,
            )
        }
        Kind::Scatter => {
            let (outgoing, readers) = if me == root {
                (request.send_parts, others)
            } else {
                (Parts::None, 0)
            };
            transfer(
                false,
                outgoing,
                readers,
                Parts::Only(root, recv.bytes()),
                Sink::Copy,
            )
        }
        Kind::AllToAll | Kind::AllToAllV => transfer(
            false,
            request.send_parts,
            others,
            request.recv_parts,
            Sink::Copy,
        ),
        Kind::Transfer => {
            let (outgoing, readers) = if me == root {
                (Parts::Whole(send.bytes()), others)
            } else {
                (Parts::None, 0)
            };
            let incoming = if me == root {
                Parts::None
            } else {
                Parts::Only(root, recv.bytes())
            };
            transfer(true, outgoing, readers, incoming, Sink::Copy)
        }
        Kind::Consensus => Body::Meet,
    }
}
