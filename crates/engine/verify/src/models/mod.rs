//! What is run in every order: two ranks, a thread each.

pub mod debts;
pub mod lanes;
pub mod posting;
pub mod reduction;
pub mod sleep;
pub mod transfer;

use std::sync::Arc;

use crate::descriptor::{Descriptor, Kind};
use crate::dtype::{DType, ReduceOp};
use crate::key::Key;
use crate::local::board::Board;
use crate::local::{Local, Party};
use crate::sys::Mapping;

/// Runs a model in all orders in which threads are interrupted at most so many times.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// A key whose home is slot 0.
fn key(number: u64) -> Key {
    Key::unnamed(number, 0)
}

fn descriptor(count: u64) -> Descriptor {
    Descriptor {
        kind: Kind::AllReduce,
        dtype: DType::U8,
        op: ReduceOp::Sum,
        shared: false,
        count,
        root: 0,
        settings: 0,
    }
}

fn boards() -> [Arc<Board>; 2] {
    let mapping = Mapping::begin(2);
    [0, 1].map(|me| Arc::new(Board::new(Arc::clone(&mapping), 2, me)))
}

fn locals() -> [Arc<Local>; 2] {
    let mapping = Mapping::begin(2);
    [0, 1].map(|me| {
        let board = Board::new(Arc::clone(&mapping), 2, me);
        Arc::new(Local::new(board, Vec::new(), Vec::new(), None))
    })
}

/// Both ranks as the members of an operation.
fn party(local: &Local) -> Party<'_> {
    let me = local.board.me();
    Party {
        local,
        members: &[0, 1],
        me,
        ranks: &[0, 1],
        others: 1 << (1 - me),
    }
}

/// Calls `poll` until it gives something, letting others go first.
fn wait_for<T>(mut poll: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(value) = poll() {
            return value;
        }
        loom::thread::yield_now();
    }
}

/// Runs rank 1 on a thread of its own and rank 0 here.
fn both(first: impl FnOnce(), second: impl FnOnce() + 'static) {
    let second = loom::thread::spawn(second);
    first();
    second.join().expect("the other rank");
}
