//! Which host connects to which, when, and what that means: purely.

use super::findings::{Finding, time};
use super::host::{on_interface, place};
use crate::channel::examination::{Examined, Probed};

/// A round trip from which on small operations are slow, in seconds.
const FAR: f64 = 0.01;
/// Bytes in a second below which large operations are slow: a tenth of a gigabit network.
const SLOW: f64 = 12.5e6;

/// One host that connects to another.
pub(super) struct Pair<'a> {
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    pub(super) near: &'a Examined,
    pub(super) far: &'a Examined,
}

/// All ordered pairs of `count` hosts, in rounds in which every host occurs at most once.
///
/// As in a tournament: one host stays, the others move on by one place after each round.
pub(super) fn rounds(count: usize) -> Vec<Vec<(usize, usize)>> {
    if count < 2 {
        return Vec::new();
    }
    // Where the number is odd, one more place stands for a pause.
    let places = count + count % 2;
    let mut rounds = Vec::new();
    for shift in 0..places - 1 {
        let at = |place: usize| match place {
            0 => 0,
            _ => 1 + (place - 1 + shift) % (places - 1),
        };
        let pairs: Vec<(usize, usize)> = (0..places / 2)
            .map(|place| (at(place), at(places - 1 - place)))
            .filter(|(one, other)| *one < count && *other < count)
            .collect();
        rounds.push(pairs.iter().map(|(one, other)| (*other, *one)).collect());
        rounds.push(pairs);
    }
    rounds
}

/// What is to be said of a pair.
pub(super) fn of_pair(pair: &Pair, probed: &Result<Probed, String>) -> Finding {
    let finding = match probed {
        Err(problem) => {
            let (from, to) = (pair.from, pair.to);
            let ports = match pair.far.ports.range {
                Some((first, last)) => format!("to ports {first} to {last}"),
                None => "to any port".to_owned(),
            };
            Finding::new(from, "network", problem).bad(format!(
                "let TCP from {from} reach {to} {ports} (firewall, routes), or name another \
                 network with --network-interfaces"
            ))
        }
        Ok(probed) => {
            let seconds = probed.round_trip_nanos as f64 / 1e9;
            let rate = probed.bytes as f64 / (probed.nanos.max(1) as f64 / 1e9);
            let seen = format!(
                "{} to {}: round trip {}, {}",
                on_interface(pair.near, probed.from),
                place(pair.far),
                time(seconds),
                per_second(rate)
            );
            let finding = Finding::new(pair.from, "network", seen)
                .value("round_trip_seconds", seconds)
                .value("bytes_per_second", rate);
            if rate < SLOW {
                finding
                    .warning("slow: is this the right network? --network-interfaces names another")
            } else if seconds > FAR {
                finding
                    .warning("far apart: every operation waits for that; use hosts that are nearer")
            } else {
                finding
            }
        }
    };
    Finding {
        to: Some(pair.to.to_owned()),
        ..finding
    }
}

fn per_second(rate: f64) -> String {
    if rate >= 1e9 {
        format!("{:.1} GB/s", rate / 1e9)
    } else {
        format!("{:.1} MB/s", rate / 1e6)
    }
}
