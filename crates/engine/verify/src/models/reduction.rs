//! Reductions in two phases through one buffer that is used again for every chunk.

use super::{both, check, descriptor, key, locals, party, wait_for};
use crate::dtype::{DType, ReduceOp};
use crate::kernels::Scale;
use crate::local::Local;
use crate::local::attend::Attendance;
use crate::local::reduce::{Combine, Reduce};
use crate::region::WINDOW_BYTES;
use crate::span::Span;

fn all_reduce(local: &Local, root: Option<usize>, bytes: usize) {
    let party = party(local);
    let mut tensor: Vec<u8> = (0..bytes).map(|i| (i % 100 + party.me) as u8).collect();
    let span = Span::one(tensor.as_mut_ptr(), bytes);
    let combine = Combine {
        dtype: DType::U8,
        op: ReduceOp::Sum,
        scale: Scale,
        divisor: 1,
    };
    let mut reduce = Reduce::new(span, span, combine, root, WINDOW_BYTES);
    let space = reduce.space(&party);
    let ticket = party.local.open(key(1), space, party.others);
    let ticket = ticket.expect("a free slot");
    let mut attendance = Attendance::new(&party, key(1), descriptor(bytes as u64), ticket);
    let staged = reduce.prepare(&party, &attendance);
    attendance.post(&party, staged, true);
    wait_for(|| {
        let done = reduce.poll(&party, &mut attendance, &mut false);
        done.expect("nobody gives up").then_some(())
    });
    attendance.finish(&party);
    if root.is_none_or(|root| root == party.me) {
        let sums: Vec<u8> = (0..bytes).map(|i| (i % 100 * 2 + 1) as u8).collect();
        assert_eq!(tensor, sums);
    }
}

/// Three chunks: the last one waits for more than those before it.
pub fn no_segment_is_overwritten_before_it_was_read() {
    check(2, || {
        let [first, second] = locals();
        let bytes = 3 * WINDOW_BYTES;
        both(
            move || all_reduce(&first, None, bytes),
            move || all_reduce(&second, None, bytes),
        );
    });
}

/// The segments of a short last chunk fall on results of the one before.
pub fn a_short_last_chunk_waits_for_the_results_under_it() {
    check(2, || {
        let [first, second] = locals();
        let bytes = WINDOW_BYTES + WINDOW_BYTES / 2;
        both(
            move || all_reduce(&first, None, bytes),
            move || all_reduce(&second, None, bytes),
        );
    });
}

pub fn a_root_alone_takes_the_results() {
    check(2, || {
        let [first, second] = locals();
        let bytes = 2 * WINDOW_BYTES;
        both(
            move || all_reduce(&first, Some(1), bytes),
            move || all_reduce(&second, Some(1), bytes),
        );
    });
}
