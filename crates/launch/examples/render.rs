//! How fast ranks' lines are rendered: `cargo run --release --example render [MEGABYTES]`.
//!
//! Four ranks print at once, each a pipe's content at a time, as a relay reads them. Nothing is
//! read or written, so that this is what rendering adds to a plain copy.

use std::hint::black_box;
use std::time::Duration;

use carole_launch::render::{Label, Out, Renderer, Stream, Style, Tail};
use rustix::time::{ClockId, clock_gettime};

const RANKS: usize = 4;
/// What a relay reads at once.
const CHUNK: usize = 64 * 1024;
/// What each rank prints again and again.
const TEXT: usize = 4 * 1024 * 1024;

fn main() {
    let argument = std::env::args().nth(1);
    let megabytes: usize = argument.map_or(200, |text| text.parse().expect("a number"));

    println!(
        "{:<44}{:>8}",
        format!("{megabytes} MB from {RANKS} ranks"),
        "GB/s"
    );
    for (name, text) in [
        ("lines of about 80 bytes", lines(80, "", "\n")),
        ("lines of about 20 bytes", lines(20, "", "\n")),
        ("lines of about 400 bytes", lines(400, "", "\n")),
        (
            "coloured lines of about 80 bytes",
            lines(80, "\x1b[32mINFO\x1b[0m ", "\n"),
        ),
        (
            "lines of about 80 bytes that end with \\r\\n",
            lines(80, "", "\r\n"),
        ),
        (
            "states of a progress bar, about 80 bytes",
            lines(80, "", "\r"),
        ),
    ] {
        println!("{name}");
        for (prefix, collapse, colour) in [
            (false, false, false),
            (true, false, false),
            (true, true, false),
            (true, true, true),
        ] {
            let style = Style {
                prefix,
                collapse,
                colour,
            };
            let rate = best(|| measure(&text, megabytes, style));
            let switch = |on| if on { "on " } else { "off" };
            println!(
                "  prefix {}, collapse {}, colour {}      {rate:>8.2}",
                switch(prefix),
                switch(collapse),
                switch(colour)
            );
        }
        println!(
            "  {:<42}{:>8.2}",
            "last lines kept",
            best(|| measure_tail(&text, megabytes))
        );
    }
}

/// Lines of about `length` bytes, no two alike.
fn lines(length: usize, before: &str, end: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(TEXT + 2 * length);
    let mut random: u64 = 1;
    for number in 0.. {
        // Between half the length and one and a half: lines that are all as long are guessed right
        // by the processor, which is not how programs print.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let width = length / 2 + (random >> 33) as usize % length;
        let line = format!("{before}step {number} ");
        text.extend_from_slice(format!("{line:.<width$}{end}").as_bytes());
        if text.len() >= TEXT {
            break;
        }
    }
    text
}

/// The best of three: the first finds memory and caches cold.
fn best(measure: impl Fn() -> f64) -> f64 {
    (0..3).map(|_| measure()).fold(0.0, f64::max)
}

/// Gigabytes of input rendered in a second.
fn measure(text: &[u8], megabytes: usize, style: Style) -> f64 {
    let labels: Vec<Label> = (0..RANKS)
        .map(|rank| Label {
            rank,
            host: "a".into(),
            role: "worker".into(),
        })
        .collect();
    let mut renderer = Renderer::new(style, &labels);
    let mut out = Out::new();
    let total = megabytes * 1_000_000;
    let start = cpu_time();
    let mut fed = 0;
    for chunk in text.chunks(CHUNK).cycle() {
        for rank in 0..RANKS {
            renderer.feed(since(start), rank, Stream::Stdout, chunk, &mut out);
            black_box(out.pieces().last());
            out.clear();
        }
        fed += RANKS * chunk.len();
        if fed >= total {
            break;
        }
    }
    renderer.finish(since(start), &mut out);
    per_second(fed, since(start))
}

/// Gigabytes in a second from which the last lines are kept.
fn measure_tail(text: &[u8], megabytes: usize) -> f64 {
    let mut tail = Tail::default();
    let chunks = (megabytes * 1_000_000).div_ceil(CHUNK);
    let start = cpu_time();
    let mut fed = 0;
    for chunk in text.chunks(CHUNK).cycle().take(chunks) {
        tail.feed(Stream::Stdout, chunk);
        fed += chunk.len();
    }
    black_box(tail.text());
    per_second(fed, since(start))
}

/// What this process has used: the time that passes says little on a machine that does other work.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn since(start: Duration) -> Duration {
    cpu_time().saturating_sub(start)
}

fn per_second(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / 1e9 / time.as_secs_f64()
}
