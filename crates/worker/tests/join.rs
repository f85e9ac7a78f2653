//! Workers as threads of this process, with a real coordinator on loopback.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use carole_coordinator::{Client, Coordinator, State, Token, serve};
use carole_engine::{DType, Kind, ReduceOp, Transport};
use carole_plan::{AlgorithmTable, PeerId, PortRange};
use carole_worker::{Environment, Error, Launched, Settings, Worker};

/// A coordinator on a thread of its own; dropping it stops the server and waits for its end.
struct Job {
    coordinator: Coordinator,
    address: SocketAddr,
    token_file: PathBuf,
    size: usize,
    settings: Settings,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    server: Option<thread::JoinHandle<()>>,
}

impl Job {
    fn new(name: &str, size: usize) -> Self {
        let token = Token::from_bytes([7; 32]);
        let token_file = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("{name}-{}.token", std::process::id()));
        std::fs::write(&token_file, token.to_hex()).unwrap();
        let coordinator = Coordinator::new(State::new(name, size), token);
        let (address, started) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = coordinator.clone();
        let server = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                address.send(listener.local_addr().unwrap()).unwrap();
                let shutdown = async { drop(stopped.await) };
                serve(listener, shutdown, serving).await.unwrap();
            });
        });
        Self {
            coordinator,
            address: started.recv().unwrap(),
            token_file,
            size,
            settings: Settings::default(),
            stop: Some(stop),
            server: Some(server),
        }
    }

    fn with(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    fn environment(&self, rank: usize) -> Environment {
        let launched = Launched {
            coordinator: format!("http://{}", self.address),
            job: "digits".into(),
            token_file: self.token_file.clone(),
            // Each job's own: an incarnation is used once, and tests run beside one another.
            peer: PeerId::new(
                "here",
                rank as u16,
                u128::from(self.address.port()) << 16 | rank as u128,
            ),
            rank,
            size: self.size,
            address: None,
            role: "worker".into(),
            generation: 1,
            restart: 0,
        };
        Environment {
            launched: Some(launched),
            settings: self.settings.clone(),
        }
    }

    /// Runs `body` on every rank, each a thread.
    fn run<R: Send>(&self, body: impl Fn(Worker) -> R + Sync) -> Vec<R> {
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..self.size)
                .map(|rank| {
                    let body = &body;
                    scope.spawn(move || body(Worker::join_as(&self.environment(rank)).unwrap()))
                })
                .collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(server) = self.server.take() {
            server.join().unwrap();
        }
        let _ = std::fs::remove_file(&self.token_file);
    }
}

#[test]
fn workers_meet_and_reduce() {
    let job = Job::new("meet", 3);
    let results = job.run(|worker| {
        let mut tensor = vec![worker.rank() as i32 + 1; 1000];
        worker
            .world()
            .call()
            .all_reduce(&mut tensor, ReduceOp::Sum)
            .unwrap();
        assert!(tensor.iter().all(|value| *value == 6));
        let position = worker.position();
        (
            worker.rank(),
            worker.size(),
            position.local_rank,
            position.local_size,
        )
    });
    assert_eq!(results, [(0, 3, 0, 3), (1, 3, 1, 3), (2, 3, 2, 3)]);
}

#[test]
fn workers_that_are_dropped_have_left() {
    let job = Job::new("leave", 2);
    job.run(|worker| worker.world().call().barrier().unwrap());
    let status = job.coordinator.status();
    assert_eq!(status.left, [0, 1]);
    assert!(status.lost.is_empty());
}

#[test]
fn a_worker_that_panics_does_not_leave_in_good_order() {
    let job = Job::new("panic", 1);
    let environment = job.environment(0);
    let rank = thread::spawn(move || {
        let _worker = Worker::join_as(&environment).unwrap();
        panic!("on purpose");
    });
    assert!(rank.join().is_err());
    assert!(job.coordinator.status().left.is_empty());
}

#[test]
fn a_loss_that_the_coordinator_knows_ends_the_others_waits() {
    let job = Job::new("loss", 2);
    job.run(|worker| {
        worker.world().call().barrier().unwrap();
        if worker.rank() == 1 {
            job.coordinator
                .report_lost(1, "killed by a test", Some(137));
            return;
        }
        let mut tensor = [0u8];
        let error = worker
            .world()
            .recv(1, "never sent", &mut tensor)
            .unwrap_err();
        let carole_engine::Error::PeerLost { rank, reason, .. } = &error else {
            panic!("{error}");
        };
        // Rank 1 may also have said goodbye first: either way its loss ends the wait.
        assert_eq!(*rank, 1, "{reason}");
    });
}

#[test]
fn the_coordinators_word_alone_ends_a_wait() {
    let job = Job::new("word", 2);
    let (over, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let over = std::sync::Mutex::new(Some(over));
    job.run(|worker| {
        worker.world().call().barrier().unwrap();
        if worker.rank() == 1 {
            job.coordinator
                .report_lost(1, "killed by a test", Some(137));
            // Stays until rank 0 has heard of it, so that nothing else tells rank 0.
            let _ = wait.lock().unwrap().recv();
            return;
        }
        let mut tensor = [0u8];
        let error = worker
            .world()
            .recv(1, "never sent", &mut tensor)
            .unwrap_err();
        assert!(error.to_string().contains("killed by a test"), "{error}");
        over.lock().unwrap().take();
    });
}

#[test]
fn groups_asked_for_twice_number_their_operations_in_one_row() {
    let job = Job::new("groups", 3);
    job.run(|worker| {
        if worker.rank() == 1 {
            assert!(worker.group(&[2, 0]).is_err(), "rank 1 is no member");
            return;
        }
        let first = worker.group(&[2, 0]).unwrap();
        first.call().barrier().unwrap();
        // Only one of the two asks again; both are at the second operation of the group.
        let again = if worker.rank() == 0 {
            worker.group(&[2, 0]).unwrap()
        } else {
            first
        };
        let mut tensor = [worker.rank() as i32];
        again.call().all_reduce(&mut tensor, ReduceOp::Max).unwrap();
        assert_eq!((tensor, again.ranks()), ([2], &[2, 0][..]));
    });
}

#[test]
fn over_tcp_ranks_still_know_that_they_share_a_host() {
    let settings = Settings {
        transport: Some(Transport::Tcp),
        ..Settings::default()
    };
    let job = Job::new("tcp", 2).with(settings);
    job.run(|worker| {
        assert_eq!(worker.position().local_size, 2);
        let local = worker.local_group().unwrap();
        assert_eq!(local.size(), 2);
        assert_eq!(worker.cross_group().unwrap().size(), 1);
        let mut tensor = [7u64; 3];
        local
            .named("local")
            .all_reduce(&mut tensor, ReduceOp::Sum)
            .unwrap();
        assert_eq!(tensor, [14; 3]);
    });
}

#[test]
fn with_tls_all_members_use_it_or_none_can_join() {
    let settings = Settings {
        transport: Some(Transport::Tcp),
        tls: Some(true),
        ..Settings::default()
    };
    let sum = |worker: Worker| {
        let mut tensor = vec![1.0f32; 100_000];
        let world = worker.world();
        world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
        assert!(tensor.iter().all(|value| *value == 2.0));
    };
    Job::new("tls", 2).with(settings.clone()).run(sum);

    let job = Job::new("half-tls", 2).with(settings);
    let texts: Vec<String> = thread::scope(|scope| {
        let join = |rank: usize| {
            let mut environment = job.environment(rank);
            environment.settings.tls = Some(rank == 0);
            scope.spawn(move || Worker::join_as(&environment).err().unwrap().describe())
        };
        let ranks = [join(0), join(1)];
        ranks.map(|rank| rank.join().unwrap()).to_vec()
    });
    assert!(texts[0].contains("rank 1 does not use TLS"), "{texts:?}");
    assert!(texts[1].contains("rank 0 uses TLS"), "{texts:?}");
}

#[test]
fn each_rank_writes_its_timeline_when_it_ends() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |rank: usize| folder.join(format!("timeline-{}.{rank}.json", std::process::id()));
    let settings = Settings {
        timeline: Some(folder.join(format!("timeline-{}.json", std::process::id()))),
        ..Settings::default()
    };
    let groups = Job::new("timeline", 2).with(settings).run(|worker| {
        let world = worker.world();
        world.named("together").barrier().unwrap();
        // A group that outlives the worker does not keep the file from being written.
        world
    });
    for rank in 0..2 {
        let text = std::fs::read_to_string(file(rank)).unwrap();
        std::fs::remove_file(file(rank)).unwrap();
        assert_eq!(text.matches("\"name\":\"together\"").count(), 1, "{text}");
        assert!(text.contains(&format!("\"rank\":{rank}")), "{text}");
    }
    drop(groups);
}

#[test]
fn a_timeline_that_cannot_be_written_is_named() {
    let environment = Environment {
        settings: Settings {
            timeline: Some("/nowhere/trace.json".into()),
            ..Settings::default()
        },
        ..Environment::default()
    };
    let text = Worker::join_as(&environment).err().unwrap().describe();
    assert!(text.contains("/nowhere/trace.0.json"), "{text}");
    assert!(text.contains("CAROLE_TIMELINE"), "{text}");
}

#[test]
fn the_first_ranks_table_is_used_by_all() {
    let job = Job::new("table", 2);
    let chosen = thread::scope(|scope| {
        let join = |rank: usize| {
            let mut environment = job.environment(rank);
            let mut table = AlgorithmTable::default();
            for rule in &mut table.local {
                rule.flat_bytes = if rank == 0 { 1 << 20 } else { 0 };
            }
            environment.settings.table = Some(table);
            scope.spawn(move || {
                let worker = Worker::join_as(&environment).unwrap();
                let world = worker.world();
                let mut tensor = vec![1.0f32; 100_000];
                world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                world.algorithm_for(Kind::AllReduce, DType::F32, 400_000)
            })
        };
        let ranks = [join(0), join(1)];
        ranks.map(|rank| rank.join().unwrap())
    });
    assert_eq!(chosen, ["flat"; 2]);
}

#[test]
fn without_a_launcher_a_worker_is_alone() {
    let worker = Worker::join_as(&Environment::default()).unwrap();
    assert_eq!((worker.rank(), worker.size()), (0, 1));
    let mut tensor = [2i8, -3];
    worker
        .world()
        .call()
        .all_reduce(&mut tensor, ReduceOp::Average)
        .unwrap();
    assert_eq!(tensor, [2, -3]);
    assert_eq!(worker.local_group().unwrap().size(), 1);
}

#[test]
fn ranks_that_never_come_are_named_and_the_rank_is_free_again() {
    let settings = Settings {
        timeout: Some(Duration::from_millis(100)),
        ..Settings::default()
    };
    let job = Job::new("late", 3).with(settings);
    let text = Worker::join_as(&job.environment(0))
        .err()
        .unwrap()
        .describe();
    assert!(text.contains("ranks 1, 2"), "{text}");
    assert!(job.coordinator.status().registered.is_empty());
}

#[test]
fn a_second_process_of_the_same_rank_is_refused() {
    let job = Job::new("twice", 1);
    let first = Worker::join_as(&job.environment(0)).unwrap();
    let mut environment = job.environment(0);
    if let Some(launched) = &mut environment.launched {
        launched.peer.incarnation = 99;
    }
    let text = Worker::join_as(&environment).err().unwrap().describe();
    assert!(text.contains("rank 0 is held by"), "{text}");
    drop(first);
}

#[test]
fn a_coordinator_that_is_gone_is_named() {
    let job = Job::new("gone", 1);
    let environment = job.environment(0);
    let token = std::fs::read(&job.token_file).unwrap();
    let (file, address) = (job.token_file.clone(), job.address);
    drop(job);
    std::fs::write(&file, token).unwrap();
    let error = Worker::join_as(&environment).err().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(matches!(error, Error::System { .. }), "{error}");
    assert!(
        error.describe().contains(&address.to_string()),
        "{}",
        error.describe()
    );
}

#[test]
fn an_unreadable_token_file_is_named() {
    let job = Job::new("token", 1);
    let mut environment = job.environment(0);
    if let Some(launched) = &mut environment.launched {
        launched.token_file = "/nowhere/token".into();
    }
    let text = Worker::join_as(&environment).err().unwrap().describe();
    assert!(text.contains("/nowhere/token"), "{text}");
}

#[test]
fn workers_listen_in_the_range_that_they_are_given_and_name_it_when_it_is_full() {
    // Other tests listen on ports that the kernel chooses; these lie below those.
    let first = 20000 + std::process::id() % 10000;
    let range: PortRange = format!("{first}-{}", first + 20).parse().unwrap();
    let job = Job::new("ports", 3).with(Settings {
        ports: Some(range),
        transport: Some(Transport::Tcp),
        ..Settings::default()
    });
    let endpoints = job.run(|worker| {
        let mut sum = [1];
        let world = worker.world();
        world.call().all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        assert_eq!(sum, [3]);
        let environment = job.environment(worker.rank());
        let token = Token::read(&job.token_file).unwrap();
        let coordinator = environment.launched.unwrap().coordinator;
        let client = Client::new(&coordinator, token).unwrap();
        let membership = client.wait_membership(0, Duration::from_secs(10)).unwrap();
        // All of them listen as long as one may look.
        world.call().barrier().unwrap();
        let members = membership.members.into_iter();
        members
            .map(|member| member.endpoint.addresses[0].port())
            .collect::<Vec<_>>()
    });
    let mut ports = endpoints[0].clone();
    assert!(ports.iter().all(|port| range.contains(*port)), "{ports:?}");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 3, "{endpoints:?}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = PortRange::single(taken.local_addr().unwrap().port());
    let job = Job::new("full", 1).with(Settings {
        ports: Some(port),
        ..Settings::default()
    });
    let error = Worker::join_as(&job.environment(0)).err().unwrap();
    assert_eq!(
        error.describe(),
        format!("listening for peers on here (127.0.0.1): every port of {port} is taken")
    );
}
