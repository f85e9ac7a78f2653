//! A tensor from every rank, added up everywhere, and one in the background.
//!
//! ```text
//! cargo build --example all_reduce
//! carole run -n 4 -- target/debug/examples/all_reduce
//! ```

use carole_engine::ReduceOp;
use carole_worker::{Error, Worker};

fn main() -> Result<(), Error> {
    let worker = Worker::join()?;
    let (rank, size) = (worker.rank(), worker.size());
    let world = worker.world();

    let ranks: Vec<u64> = (0..1000).map(|i| (rank + i) as u64).collect();
    let largest = world
        .named("largest")
        .start_all_reduce(ranks, ReduceOp::Max)?;
    let mut gradient = [rank as f32; 4];
    world
        .named("gradient")
        .all_reduce(&mut gradient, ReduceOp::Average)?;
    let largest = largest.wait()?;

    let average = (size - 1) as f32 / 2.0;
    assert!(
        gradient.iter().all(|value| (value - average).abs() < 1e-6),
        "{gradient:?}"
    );
    assert!(
        largest
            .iter()
            .enumerate()
            .all(|(i, value)| *value == (size - 1 + i) as u64)
    );
    if rank == 0 {
        println!(
            "all_reduce: {size} ranks, average {average}, largest rank {}",
            largest[0]
        );
    }
    world.call().barrier()?;
    Ok(())
}
