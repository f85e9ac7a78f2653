//! TLS between hosts: collectives work over it, and nobody talks to whom it does not know.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use carole_engine::testing::{membership, peers, peers_tls, spawn_tls};
use carole_engine::{Error, Options, Peer, ReduceOp, Session};
use carole_plan::Membership;

fn layouts() -> Vec<Vec<usize>> {
    vec![vec![0, 1, 2], vec![0, 0, 1, 1]]
}

fn brief() -> Options {
    Options {
        form: Duration::from_secs(2),
        ..Options::default()
    }
}

/// Forms on every peer at once.
fn form_all(
    peers: &[&Peer],
    membership: &Membership,
    options: &Options,
) -> Vec<Result<Session, Error>> {
    std::thread::scope(|scope| {
        let forming: Vec<_> = peers
            .iter()
            .map(|peer| scope.spawn(|| peer.form(membership, options)))
            .collect();
        forming.into_iter().map(|f| f.join().unwrap()).collect()
    })
}

#[test]
fn collectives_work_over_tls() {
    for hosts in layouts() {
        spawn_tls(&hosts, &Options::default(), |session| {
            let world = session.world();
            let (rank, size) = (world.rank(), world.size());
            let total = (0..size).sum::<usize>() as f32;
            for length in [0, 1, 7, 4095, 100_003, 3_000_001] {
                let mut tensor: Vec<f32> = vec![rank as f32; length];
                world.call().all_reduce(&mut tensor, ReduceOp::Sum).unwrap();
                assert!(tensor.iter().all(|v| v.to_bits() == total.to_bits()));

                let mut tensor = vec![rank as u16; length];
                world.call().broadcast(&mut tensor, size - 1).unwrap();
                assert!(tensor.iter().all(|v| usize::from(*v) == size - 1));

                let mut gathered = vec![0u8; length * size];
                let own = vec![rank as u8; length];
                world.call().all_gather(&own, &mut gathered).unwrap();
                assert!((0..gathered.len()).all(|i| usize::from(gathered[i]) == i / length));

                let mut exchanged = vec![0u8; length * size];
                let own: Vec<u8> = (0..length * size)
                    .map(|i| (i / length * size + rank) as u8)
                    .collect();
                world.call().all_to_all(&own, &mut exchanged).unwrap();
                let expected = |i: usize| (rank * size + i / length) as u8;
                assert!((0..exchanged.len()).all(|i| exchanged[i] == expected(i)));
            }
            world.call().barrier().unwrap();
        });
    }
}

#[test]
fn many_operations_in_flight_share_a_tls_connection() {
    spawn_tls(&[0, 1, 2], &Options::default(), |session| {
        let world = session.world();
        let names: Vec<String> = (0..24).map(|index| format!("grad/{index}")).collect();
        // Orders differ between ranks, sizes between operations.
        let mut order: Vec<usize> = (0..24).collect();
        order.rotate_left(8 * session.rank());
        let pending: Vec<_> = order
            .iter()
            .map(|index| {
                let tensor = vec![*index as f32; 1 + index * 9973];
                let call = world.named(&names[*index]);
                (
                    *index,
                    call.start_all_reduce(tensor, ReduceOp::Sum).unwrap(),
                )
            })
            .collect();
        // A blocking call among them moves its own bytes.
        let mut tensor = vec![1.0f32; 200_000];
        world
            .named("own")
            .all_reduce(&mut tensor, ReduceOp::Sum)
            .unwrap();
        assert_eq!(tensor[199_999].to_bits(), 3f32.to_bits());
        for (index, pending) in pending {
            let tensor = pending.wait().unwrap();
            let expected = 3.0 * index as f32;
            assert!(tensor.iter().all(|v| v.to_bits() == expected.to_bits()));
        }
        session
            .save("model", 1, &vec![session.rank() as u8; 700_000])
            .unwrap();
        world.call().barrier().unwrap();
        let next = (session.rank() + 1) % 3;
        let (version, blob) = session.request(next, "model", None).unwrap().unwrap();
        assert_eq!((version, blob.len(), blob[0]), (1, 700_000, next as u8));
        world.call().barrier().unwrap();
    });
}

#[test]
fn a_rank_that_leaves_is_named_over_tls() {
    spawn_tls(&[0, 1, 2], &Options::default(), |session| {
        let world = session.world();
        world.call().barrier().unwrap();
        if world.rank() == 2 {
            return;
        }
        let began = Instant::now();
        let outcome = world.call().all_reduce(&mut [1.0f32], ReduceOp::Sum);
        assert!(
            matches!(outcome, Err(Error::PeerLost { rank: 2, .. })),
            "{outcome:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(2));
    });
}

#[test]
fn only_peers_with_tls_register_a_certificate() {
    let (plain, tls) = (peers(&[0]), peers_tls(&[0, 1]));
    assert_eq!(plain[0].endpoint().certificate, None);
    let certificates: Vec<&String> = tls
        .iter()
        .map(|peer| peer.endpoint().certificate.as_ref().unwrap())
        .collect();
    assert!(certificates.iter().all(|text| text.len() == 64));
    assert_ne!(certificates[0], certificates[1]);
}

/// Stands between two peers and writes down what they say to each other.
fn eavesdrop(membership: &mut Membership) -> Receiver<Vec<u8>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let addresses = &mut membership.members[0].endpoint.addresses;
    let target = addresses[0];
    *addresses = vec![listener.local_addr().unwrap()];
    let (sender, heard) = channel();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(target).unwrap();
        for (mut from, mut to) in [
            (client.try_clone().unwrap(), server.try_clone().unwrap()),
            (server, client),
        ] {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut buffer) {
                    let _ = sender.send(buffer[..count].to_vec());
                    if to.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    });
    heard
}

#[test]
fn nothing_of_the_data_shows_on_the_wire() {
    const SECRET: &[u8] = b"weights";
    let shows = |peers: Vec<Peer>| {
        let mut membership = membership(&peers, &[0, 1], 1);
        let heard = eavesdrop(&mut membership);
        std::thread::scope(|scope| {
            for peer in &peers {
                scope.spawn(|| {
                    let session = peer.form(&membership, &Options::default()).unwrap();
                    let mut tensor = SECRET.repeat(30_000);
                    session.world().call().broadcast(&mut tensor, 0).unwrap();
                    session.world().call().barrier().unwrap();
                });
            }
        });
        drop(peers);
        let heard: Vec<u8> = heard.into_iter().flatten().collect();
        assert!(heard.len() > 200_000);
        heard.windows(SECRET.len()).any(|window| window == SECRET)
    };
    assert!(shows(peers(&[0, 1])), "what is sent in the clear is seen");
    assert!(!shows(peers_tls(&[0, 1])), "what is encrypted is not");
}

#[test]
fn a_wrong_certificate_is_refused_by_either_side() {
    // Rank 1 connects to rank 0, which shows another certificate than the membership says.
    let tls = peers_tls(&[0, 1, 2]);
    let mut membership = membership(&tls[..2], &[0, 1], 1);
    let right = membership.clone();
    let other = tls[2].endpoint().certificate.clone();
    membership.members[0]
        .endpoint
        .certificate
        .clone_from(&other);
    let outcome = form_all(&[&tls[0], &tls[1]], &membership, &brief());
    let told = outcome[1].as_ref().map(drop).unwrap_err().to_string();
    assert!(
        told.contains("its certificate is not the one that it registered"),
        "{told}"
    );
    assert!(outcome[0].is_err());

    // Rank 0 is connected to by somebody with another certificate.
    let mut membership = right.clone();
    membership.generation.counter = 2;
    membership.members[1].endpoint.certificate = other;
    let outcome = form_all(&[&tls[0], &tls[1]], &membership, &brief());
    let told = outcome[0].as_ref().map(drop).unwrap_err().to_string();
    assert!(told.contains("rank 1"), "{told}");
    assert!(outcome[1].is_err());

    // No fingerprint at all.
    let mut membership = right.clone();
    membership.generation.counter = 3;
    membership.members[0].endpoint.certificate = Some("beef".into());
    let told = tls[1]
        .form(&membership, &brief())
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("rank 0") && told.contains("SHA-256"),
        "{told}"
    );

    // With the right ones, all is well.
    let mut membership = right;
    membership.generation.counter = 4;
    assert!(
        form_all(&[&tls[0], &tls[1]], &membership, &brief())
            .iter()
            .all(Result::is_ok)
    );
}

#[test]
fn tls_and_plain_members_do_not_mix() {
    let (plain, tls) = (peers(&[0, 1]), peers_tls(&[0, 1]));
    for (first, second) in [(&plain[0], &tls[1]), (&tls[0], &plain[1])] {
        let mut both = membership(&plain, &[0, 1], 1);
        for (member, peer) in both.members.iter_mut().zip([first, second]) {
            let machine = member.endpoint.machine.clone();
            member.peer = peer.id().clone();
            member.endpoint = peer.endpoint().clone();
            member.endpoint.machine = machine;
        }
        let began = Instant::now();
        for outcome in form_all(&[first, second], &both, &Options::default()) {
            let told = outcome.map(drop).unwrap_err().to_string();
            assert!(told.contains("all members must, or none"), "{told}");
        }
        assert!(began.elapsed() < Duration::from_secs(1), "at once");
        // Also when the membership does not tell: the side that connects is plain,
        let mut silent = both.clone();
        let own = second.endpoint().certificate.clone();
        for member in &mut silent.members {
            member.endpoint.certificate = own.as_ref().map(|_| "ab".repeat(32));
        }
        let told = second.form(&silent, &brief()).map(drop).unwrap_err();
        assert!(matches!(told, Error::Refused { .. }), "{told}");
    }
}

#[test]
fn a_plain_hello_is_refused_by_a_tls_peer() {
    let tls = peers_tls(&[0]);
    let mut stream = TcpStream::connect(tls[0].endpoint().addresses[0]).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut hello = b"CAROLE\x00\x01".to_vec();
    hello.resize(152, 0);
    stream.write_all(&hello).unwrap();
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    assert!(heard.len() < 50, "an alert at most: {heard:?}");
}
