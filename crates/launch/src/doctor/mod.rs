//! Whether jobs will run on some hosts, and what is in their way.
//!
//! # Expected flow
//!
//! An agent is started on every host, as for a job, and asked what its host is like. Then every
//! host connects to every other under the address that a job would use, in rounds in which no host
//! has two things to do. What was seen becomes [`Finding`]s, purely, in `host` and `network`.
//!
//! # Guarantees
//!
//! Every step is bounded in time. A host that cannot be reached is a finding, and does not keep the
//! others from being examined. Nothing is left running.

mod findings;
mod host;
mod network;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

pub use self::findings::{Finding, Health};
use self::host::{Clock, Subject, Use};
use self::network::Pair;
use crate::channel::examination::{Examine, Examined, Listen, Probe, Probed};
use crate::channel::message::{Order, Report};
use crate::error::{Error, HostProblem};
use crate::fleet::{self, Host, Member, Reach, Way};
use crate::random::random_incarnation;

/// How long a host may take for one answer: longer than an agent's own limits.
const ANSWER: Duration = Duration::from_secs(15);
/// How often a host is asked for its time; the fastest answer counts.
const CLOCK_ROUNDS: usize = 5;

/// Examines this machine and `hosts`, whose ranks would use the first of `interfaces` that a host
/// has.
pub async fn examine(
    hosts: &[Host],
    interfaces: &[String],
    reach: &Reach,
) -> Result<Vec<Finding>, Error> {
    let launches_only = hosts.iter().all(|host| host.way != Way::Here);
    let mut all = hosts.to_vec();
    if launches_only {
        all.insert(0, Host::here());
    }
    let joined = fleet::join_all(&all, reach).await?;
    let mut patients = interview(joined, interfaces).await?;
    let ranks = usize::from(launches_only);
    settle(&mut patients[ranks..], !interfaces.is_empty());
    let mut found = Vec::new();
    for (index, (one, patient)) in all.iter().zip(&patients).enumerate() {
        let subject = Subject {
            host: &one.name,
            remote: one.way != Way::Here,
            purpose: if index < ranks {
                Use::Launcher
            } else {
                Use::Ranks
            },
        };
        found.extend(match patient {
            Ok(patient) => host::of_host(
                &subject,
                &patient.member.hello.version,
                &patient.examined,
                patient.clock,
            ),
            Err(problem) => vec![host::unreachable(&subject, problem)],
        });
    }
    let others = patients.split_off(ranks);
    found.extend(probe_all(others).await?);
    end(patients).await;
    Ok(found)
}

/// A host that was reached, and what it told.
struct Patient {
    member: Member,
    examined: Examined,
    clock: Option<Clock>,
}

/// Asks all hosts at once what they are like.
async fn interview(
    joined: Vec<Result<Member, HostProblem>>,
    interfaces: &[String],
) -> Result<Vec<Result<Patient, HostProblem>>, Error> {
    let mut asking = JoinSet::new();
    for (index, joined) in joined.into_iter().enumerate() {
        let interfaces = interfaces.to_vec();
        asking.spawn(async move {
            let patient = match joined {
                Ok(member) => question(member, interfaces).await,
                Err(problem) => Err(problem),
            };
            (index, patient)
        });
    }
    let mut all = Vec::new();
    while let Some(asked) = asking.join_next().await {
        all.push(asked.map_err(|error| Error::Internal(error.to_string()))?);
    }
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, patient)| patient).collect())
}

async fn question(mut member: Member, interfaces: Vec<String>) -> Result<Patient, HostProblem> {
    let order = Order::Examine(Examine { interfaces });
    let examined = match member.ask(order, ANSWER).await? {
        Report::Examined(examined) => *examined,
        other => return Err(unexpected(&member, &other)),
    };
    let clock = match member.host.way {
        Way::Here => None,
        Way::Ssh(_) => Some(clock(&mut member).await?),
    };
    Ok(Patient {
        member,
        examined,
        clock,
    })
}

/// Compares a host's clock with this one's.
async fn clock(member: &mut Member) -> Result<Clock, HostProblem> {
    let mut best: Option<Clock> = None;
    for _ in 0..CLOCK_ROUNDS {
        let here = SystemTime::now().duration_since(UNIX_EPOCH);
        let sent = here.map_or(0, |since| since.as_nanos() as u64);
        let begin = Instant::now();
        let there = match member.ask(Order::Clock, ANSWER).await? {
            Report::Clock(there) => there,
            other => return Err(unexpected(member, &other)),
        };
        let round = Clock::new(sent, begin.elapsed(), there);
        if best.is_none_or(|best| round.round_trip < best.round_trip) {
            best = Some(round);
        }
    }
    best.ok_or_else(|| member.problem("it did not tell the time".into()))
}

fn unexpected(member: &Member, report: &Report) -> HostProblem {
    member.problem(format!("it reported {report:?}"))
}

/// Gives the hosts of ranks the addresses that a job would.
fn settle(patients: &mut [Result<Patient, HostProblem>], named: bool) {
    let mut reached: Vec<(&mut Patient, IpAddr)> = patients
        .iter_mut()
        .flatten()
        .filter_map(|patient| {
            let own = patient.examined.address.clone().ok()?;
            Some((patient, own))
        })
        .collect();
    let told: Vec<_> = reached
        .iter()
        .map(|(patient, own)| (&patient.member.host.way, *own, patient.examined.launcher))
        .collect();
    let addresses = fleet::addresses(&told, named);
    for ((patient, _), address) in reached.iter_mut().zip(addresses) {
        patient.examined.address = Ok(address);
    }
}

/// Ends the agents, and waits until they have.
async fn end(patients: impl IntoIterator<Item = Result<Patient, HostProblem>>) {
    let members = patients.into_iter().flatten().map(|patient| patient.member);
    fleet::end_all(members).await;
}

/// Has every host that was reached connect to every other, and ends their agents.
async fn probe_all(patients: Vec<Result<Patient, HostProblem>>) -> Result<Vec<Finding>, Error> {
    // Hosts without an address have a finding of their own.
    let mut patients: Vec<Option<Patient>> = patients
        .into_iter()
        .flatten()
        .filter(|patient| patient.examined.address.is_ok())
        .map(Some)
        .collect();
    let mut found = Vec::new();
    for round in network::rounds(patients.len()) {
        let mut probing = JoinSet::new();
        for (from, to) in round {
            let (Some(near), Some(far)) = (patients[from].take(), patients[to].take()) else {
                return Err(Error::Internal("a host has two things to do".into()));
            };
            let word = format!("{:032x}", random_incarnation()?);
            probing.spawn(async move { (from, to, probe(near, far, word).await) });
        }
        while let Some(done) = probing.join_next().await {
            let (from, to, (near, far, finding)) =
                done.map_err(|error| Error::Internal(error.to_string()))?;
            patients[from] = Some(near);
            patients[to] = Some(far);
            found.push((from, to, finding));
        }
    }
    end(patients.into_iter().flatten().map(Ok)).await;
    found.sort_by_key(|(from, to, _)| (*from, *to));
    Ok(found.into_iter().map(|(_, _, finding)| finding).collect())
}

/// Has one host connect to another.
async fn probe(mut near: Patient, mut far: Patient, word: String) -> (Patient, Patient, Finding) {
    let probed = connect(&mut near, &mut far, word).await;
    let pair = Pair {
        from: &near.member.host.name,
        to: &far.member.host.name,
        near: &near.examined,
        far: &far.examined,
    };
    let finding = network::of_pair(&pair, &probed);
    (near, far, finding)
}

async fn connect(near: &mut Patient, far: &mut Patient, word: String) -> Result<Probed, String> {
    let address = far.examined.address.clone()?;
    let (near, far) = (&mut near.member, &mut far.member);
    let told = |problem: HostProblem| format!("{}: {}", problem.host, problem.problem);
    let listen = Order::Listen(Listen {
        address,
        word: word.clone(),
    });
    let port = match far.ask(listen, ANSWER).await.map_err(told)? {
        Report::Listening(port) => port?,
        other => return Err(told(unexpected(far, &other))),
    };
    let probe = Order::Probe(Probe {
        address: (address, port).into(),
        word,
    });
    match near.ask(probe, ANSWER).await.map_err(told)? {
        Report::Probed(probed) => probed,
        other => Err(told(unexpected(near, &other))),
    }
}
