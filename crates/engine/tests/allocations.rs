//! No allocation on the data path after warm-up.

#![expect(unsafe_code, reason = "a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use carole_engine::testing::spawn;
use carole_engine::{Group, ReduceOp};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is the system allocator's; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
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

#[test]
fn collectives_on_one_host_take_no_memory_after_the_first() {
    let counts = spawn(3, |session| {
        let world = session.world();
        let mut buffers = Buffers {
            tensor: vec![0.5; 500_000],
            gathered: vec![0.0; 1_500_000],
        };
        for _ in 0..3 {
            round(&world, &mut buffers);
        }
        world.call().barrier().unwrap();
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        world.call().barrier().unwrap();
        for _ in 0..20 {
            round(&world, &mut buffers);
        }
        world.call().barrier().unwrap();
        let after = ALLOCATIONS.load(Ordering::SeqCst);
        world.call().barrier().unwrap();
        after - before
    });
    // The engine threads may wake once or twice for their heartbeat; they do not move data here.
    assert!(
        counts.iter().all(|count| *count < 20),
        "allocations while 20 rounds ran: {counts:?}"
    );
}
