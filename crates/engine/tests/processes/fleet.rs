//! The side of the test: rank processes, what they say, and their end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use carole_plan::{Generation, Member, Membership};

use super::orders::{FLEET, MARK, Order, Reply, SLOT, Settings, TLS};

/// No reply of a healthy rank takes this long, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// A rank process, killed when dropped.
pub(crate) struct RankProcess {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    pub(crate) log: Vec<String>,
    pub(crate) member: Member,
}

/// The test in which a rank process begins.
const ENTRANCE: &str = "a_rank_killed_before_an_all_reduce_is_named_by_all_others";

impl RankProcess {
    fn start(fleet: &str, slot: usize, tls: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        if tls {
            command.env(TLS, "1");
        }
        let mut child = command
            .args(["--exact", ENTRANCE, "--nocapture"])
            .env(FLEET, fleet)
            .env(SLOT, slot.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a rank process");
        let orders = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut log = Vec::new();
        let Reply::Listening(member) = receive(&lines, &mut log, PATIENCE) else {
            panic!("the rank did not say where it listens: {log:?}")
        };
        Self {
            child,
            orders,
            lines,
            log,
            member,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn tell(&mut self, order: &Order) {
        let text = serde_json::to_string(order).expect("JSON");
        writeln!(self.orders, "{text}").expect("the rank listens");
    }

    /// The next reply, within the usual patience.
    pub(crate) fn hear(&mut self) -> Reply {
        receive(&self.lines, &mut self.log, PATIENCE)
    }

    /// The next reply, which must come before `deadline`.
    pub(crate) fn hear_by(&mut self, deadline: Instant) -> Reply {
        let left = deadline.saturating_duration_since(Instant::now());
        receive(&self.lines, &mut self.log, left)
    }

    /// The next line of the log with all these words.
    pub(crate) fn read_log(&mut self, words: &[&str]) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no line with {words:?}: {:?}", self.log));
            let found = words.iter().all(|word| line.contains(word));
            assert!(!line.starts_with(MARK), "{line} before {words:?}");
            self.log.push(line.clone());
            if found {
                return line;
            }
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("SIGKILL");
    }

    pub(crate) fn signal(&self, signal: i32) {
        send_signal(self.pid(), signal);
    }

    /// Waits for its end, after a kill.
    pub(crate) fn reap(&mut self) {
        self.child.wait().expect("its end");
    }
}

impl Drop for RankProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn receive(lines: &Receiver<String>, log: &mut Vec<String>, limit: Duration) -> Reply {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let line = lines
            .recv_timeout(left)
            .unwrap_or_else(|error| panic!("no reply within {limit:?} ({error}): {log:#?}"));
        // The test harness leaves its own line unfinished before the first reply.
        if let Some(at) = line.find(MARK) {
            return serde_json::from_str(&line[at + MARK.len()..]).expect("a reply");
        }
        log.push(line);
    }
}

#[expect(unsafe_code, reason = "there is no safe kill")]
pub(crate) fn send_signal(pid: i32, signal: i32) {
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "signal {signal}");
}

/// Ranks of one job.
pub(crate) struct Fleet {
    /// In the environment of every process that stems from this fleet.
    pub(crate) name: String,
    pub(crate) ranks: Vec<RankProcess>,
    counter: u32,
}

impl Fleet {
    /// Starts processes and has them form a session.
    pub(crate) fn form(size: usize, settings: Settings) -> Self {
        let mut fleet = Self::start(size, false);
        fleet.form_again(settings);
        fleet
    }

    /// The same with TLS between all ranks.
    pub(crate) fn form_tls(size: usize) -> Self {
        let mut fleet = Self::start(size, true);
        fleet.form_again(Settings::TCP);
        fleet
    }

    fn start(size: usize, tls: bool) -> Self {
        use std::hash::{BuildHasher, Hasher, RandomState};
        let random = RandomState::new().build_hasher().finish();
        let name = format!("{:032x}", u128::from(random) << 16);
        let ranks = (0..size).map(|slot| RankProcess::start(&name, slot, tls));
        Self {
            ranks: ranks.collect(),
            name,
            counter: 0,
        }
    }

    /// The next generation, of all ranks that are left.
    pub(crate) fn form_again(&mut self, settings: Settings) {
        self.counter += 1;
        let membership = Membership {
            generation: Generation {
                term: 1,
                counter: self.counter,
            },
            members: self.ranks.iter().map(|rank| rank.member.clone()).collect(),
        };
        self.tell_all(&Order::Form(membership, settings));
        self.all_answer(&Reply::Formed);
    }

    pub(crate) fn tell_all(&mut self, order: &Order) {
        for rank in &mut self.ranks {
            rank.tell(order);
        }
    }

    pub(crate) fn all_answer(&mut self, reply: &Reply) {
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            assert_eq!(process.hear(), *reply, "from rank {rank}");
        }
    }

    /// Every rank but the lost one ends its call with the loss within `limit` of `since`.
    pub(crate) fn all_lose(&mut self, lost: usize, since: Instant, limit: Duration) {
        let survivors = self
            .ranks
            .iter_mut()
            .enumerate()
            .filter(|(r, _)| *r != lost);
        for (rank, process) in survivors {
            let Reply::Lost {
                rank: named,
                message,
            } = process.hear_by(since + limit)
            else {
                panic!("rank {rank} did not lose rank {lost}")
            };
            assert_eq!(named, lost, "rank {rank}: {message}");
            assert!(message.contains("all_reduce"), "rank {rank}: {message}");
        }
    }
}

/// Processes with this fleet's name in their environment.
pub(crate) fn processes_of(fleet: &str) -> Vec<i32> {
    let marker = format!("{FLEET}={fleet}");
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|entry| entry == marker.as_bytes())
            })
        })
        .collect()
}
