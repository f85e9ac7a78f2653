//! spike
#![allow(unsafe_code)]
use carole_engine::{ReduceOp, testing::Shared};
use std::time::Instant;
fn main() {
    let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let sizes: Vec<usize> = std::env::args()
        .nth(2)
        .unwrap()
        .split(',')
        .map(|s| s.parse().unwrap())
        .collect();
    let shared = Shared::new(n);
    let mut pids = vec![];
    for rank in 1..n {
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            run(rank, &shared, &sizes);
            std::process::exit(0);
        }
        pids.push(pid);
    }
    run(0, &shared, &sizes);
    for p in pids {
        unsafe {
            libc::waitpid(p, std::ptr::null_mut(), 0);
        }
    }
}
fn run(rank: usize, shared: &Shared, sizes: &[usize]) {
    let session = shared.session(rank);
    let world = session.world();
    let n = world.size() as f32;
    for &bytes in sizes {
        let count = bytes / 4;
        let mut data: Vec<f32> = (0..count).map(|i| (i % 7) as f32 + rank as f32).collect();
        world.call().all_reduce(&mut data, ReduceOp::Sum).unwrap();
        for (i, v) in data.iter().enumerate() {
            assert_eq!(
                *v,
                n * (i % 7) as f32 + n * (n - 1.0) / 2.0,
                "at {i} of {count}"
            );
        }
        data.fill(0.0);
        let batch = if bytes < 65536 { 200 } else { 1 };
        let mut times = vec![];
        let start = Instant::now();
        let mut go = 1u8;
        while go != 0 {
            world.call().barrier().unwrap();
            let t = Instant::now();
            for _ in 0..batch {
                world.call().all_reduce(&mut data, ReduceOp::Sum).unwrap();
            }
            times.push(t.elapsed().as_secs_f64() * 1e6 / batch as f64);
            let mut g = [u8::from(start.elapsed().as_secs_f64() < 0.6)];
            world.call().all_reduce(&mut g, ReduceOp::Min).unwrap();
            go = g[0];
        }
        times.sort_by(f64::total_cmp);
        if rank == 0 {
            println!(
                "n={n} bytes={bytes:>10} median {:>10.2} us  min {:>10.2} p90 {:>10.2}",
                times[times.len() / 2],
                times[0],
                times[times.len() * 9 / 10]
            );
        }
    }
}
