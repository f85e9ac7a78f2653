//! No allocation on the data path after warm-up.

#![expect(unsafe_code, reason = "a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use carole_engine::testing::spawn_on;
use carole_engine::{Group, Options, ReduceOp};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

fn count() {
    // A thread that ends has no such cell any more, and nothing to count.
    if COUNTED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: everything is the system allocator's; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: passed on as it came.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Buffers of one rank, made before anything is counted.
struct Buffers {
    tensor: Vec<f32>,
    gathered: Vec<f32>,
}

fn round(world: &Group, buffers: &mut Buffers) {
    let size = world.size();
    for length in [1usize, 200, 3000, 50_000, 500_000] {
        world.call().barrier().unwrap();
        world
            .call()
            .all_reduce(&mut buffers.tensor[..length], ReduceOp::Sum)
            .unwrap();
        world
            .named("grad")
            .all_reduce(&mut buffers.tensor[..length], ReduceOp::Max)
            .unwrap();
        world
            .call()
            .broadcast(&mut buffers.tensor[..length], 1)
            .unwrap();
        let part = length / size;
        let (send, recv) = (
            &buffers.tensor[..part],
            &mut buffers.gathered[..part * size],
        );
        world.call().all_gather(send, recv).unwrap();
        let (send, recv) = (
            &buffers.gathered[..part * size],
            &mut buffers.tensor[..part],
        );
        world
            .call()
            .reduce_scatter(send, recv, ReduceOp::Sum)
            .unwrap();
        world
            .call()
            .reduce(&mut buffers.tensor[..length], ReduceOp::Sum, 0)
            .unwrap();
    }
}

thread_local! {
    /// Whether this thread's allocations are counted: those of ranks are, while they are measured.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Allocations by the ranks' own threads in 20 rounds, after 3 that are not counted.
fn counted(hosts: &[usize]) -> usize {
    spawn_on(hosts, &Options::default(), |session| {
        let world = session.world();
        let mut buffers = Buffers {
            tensor: vec![0.5; 500_000],
            gathered: vec![0.0; 500_000 * hosts.len()],
        };
        for _ in 0..3 {
            round(&world, &mut buffers);
        }
        COUNTED.set(true);
        for _ in 0..20 {
            round(&world, &mut buffers);
        }
        COUNTED.set(false);
        world.call().barrier().unwrap();
    });
    ALLOCATIONS.load(Ordering::SeqCst)
}

#[test]
fn collectives_take_no_memory_after_the_first_few() {
    // One host, as many hosts as ranks, and a mixture.
    for hosts in [&[0, 0, 0][..], &[0, 1, 2], &[0, 0, 1, 1]] {
        ALLOCATIONS.store(0, Ordering::SeqCst);
        let allocations = counted(hosts);
        // Twenty rounds are 700 operations on each rank. What early postings are kept in grows when
        // more of them wait than ever before, which is a matter of timing.
        assert!(
            allocations <= 20,
            "{allocations} allocations on hosts {hosts:?}"
        );
    }
}
