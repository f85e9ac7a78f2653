//! Looking names up, with a name server of our own on loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::message::{Answer, answer, question};
use super::*;

/// A name server: the zone says what it does with a name.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

/// What the server knows of a name.
#[derive(Clone)]
enum Entry {
    V4([u8; 4]),
    Alias(&'static str, [u8; 4]),
    /// More than fits a datagram.
    Many(u8),
    /// Answers that others could have made up come first.
    Forged([u8; 4]),
    Fails,
    Silent,
}

type Zone = Vec<(&'static str, Entry)>;

impl Server {
    /// Its threads end with the test's process.
    fn start(zone: Zone) -> Self {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, by_udp) = (Arc::clone(&asked), zone.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok((count, from)) = udp.recv_from(&mut bytes) {
                let (name, _) = asked_for(&bytes[..count]);
                log.lock().unwrap().push(name);
                for reply in replies(&bytes[..count], &by_udp, 512) {
                    udp.send_to(&reply, from).unwrap();
                }
            }
        });
        std::thread::spawn(move || {
            for stream in tcp.incoming() {
                let mut stream = stream.unwrap();
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut bytes).unwrap();
                for reply in replies(&bytes, &zone, 65_535) {
                    stream
                        .write_all(&(reply.len() as u16).to_be_bytes())
                        .unwrap();
                    stream.write_all(&reply).unwrap();
                }
            }
        });
        Self { address, asked }
    }
}

/// The name and the kind in a question.
fn asked_for(question: &[u8]) -> (String, u8) {
    let mut labels = Vec::new();
    let mut at = 12;
    while question[at] > 0 {
        let end = at + 1 + usize::from(question[at]);
        labels.push(String::from_utf8(question[at + 1..end].to_vec()).unwrap());
        at = end;
    }
    (labels.join("."), question[at + 2])
}

fn replies(question: &[u8], zone: &Zone, room: usize) -> Vec<Vec<u8>> {
    let (name, kind) = asked_for(question);
    let reply = |code: u8, records: &[Vec<u8>]| {
        let mut bytes = question.to_vec();
        bytes[2] |= 0x80;
        bytes[3] = code;
        let all: Vec<u8> = records.concat();
        if bytes.len() + all.len() > room {
            bytes[2] |= 0x02;
        } else {
            bytes[7] = records.len() as u8;
            bytes.extend(all);
        }
        bytes
    };
    // The owner is the question's own name: a pointer to it.
    let record = |kind: u8, data: &[u8]| {
        let head = [0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, data.len() as u8];
        [&head[..], data].concat()
    };
    let entry = zone.iter().find(|(own, _)| name.eq_ignore_ascii_case(own));
    match entry.map(|(_, entry)| entry.clone()) {
        None => vec![reply(3, &[])],
        Some(Entry::Fails) => vec![reply(2, &[])],
        Some(Entry::Silent) => Vec::new(),
        Some(_) if kind != 1 => vec![reply(0, &[])],
        Some(Entry::V4(address)) => vec![reply(0, &[record(1, &address)])],
        Some(Entry::Many(count)) => {
            let all: Vec<_> = (0..count).map(|n| record(1, &[10, 0, 0, n])).collect();
            vec![reply(0, &all)]
        }
        Some(Entry::Alias(other, address)) => {
            let mut data: Vec<u8> = Vec::new();
            for label in other.split('.') {
                data.push(label.len() as u8);
                data.extend(label.bytes());
            }
            data.push(0);
            let head = [0, 1, 0, 1, 0, 0, 0, 60, 0, 4];
            let target = [&data[..], &head, &address].concat();
            // The address first: servers may write records in any order.
            vec![reply(0, &[target, record(5, &data)])]
        }
        Some(Entry::Forged(address)) => {
            let right = reply(0, &[record(1, &address)]);
            let forged = reply(0, &[record(1, &[6, 6, 6, 6])]);
            let mut other_number = forged.clone();
            other_number[0] ^= 1;
            let mut other_name = forged.clone();
            other_name[13] = b'x';
            let mut no_answer = forged.clone();
            no_answer[2] &= 0x7f;
            let cut = forged[..forged.len() - 2].to_vec();
            vec![
                other_number,
                other_name,
                no_answer,
                cut,
                b"?".to_vec(),
                right,
            ]
        }
    }
}

fn places(servers: &[&Server]) -> Places<'static> {
    Places {
        hosts: Path::new("/nonexistent"),
        configuration: Configuration {
            servers: servers.iter().map(|server| server.address).collect(),
            search: vec!["example.org".into(), "lab".into()],
            timeout: Duration::from_millis(300),
            ..Configuration::default()
        },
    }
}

fn found(name: &str, places: &Places) -> Result<Vec<String>, String> {
    let deadline = Instant::now() + Duration::from_secs(20);
    let found = look_up(name, places, deadline).map_err(|error| error.to_string())?;
    Ok(found.iter().map(ToString::to_string).collect())
}

#[test]
fn an_address_is_its_own_and_localhost_needs_nobody() {
    let nowhere = Places {
        hosts: Path::new("/nonexistent"),
        configuration: Configuration {
            servers: Vec::new(),
            ..Configuration::default()
        },
    };
    assert_eq!(found("10.1.2.3", &nowhere).unwrap(), ["10.1.2.3"]);
    assert_eq!(found("[fe80::1]", &nowhere).unwrap(), ["fe80::1"]);
    assert_eq!(found("LOCALHOST", &nowhere).unwrap(), ["127.0.0.1", "::1"]);
    assert!(found("other", &nowhere).is_err());
}

#[test]
fn the_hosts_file_comes_first() {
    let text = "# 10.0.0.1 node\n10.0.0.2 node.lab Node # node2\n\nnonsense node\nfe80::2 x node\n";
    let addresses = in_hosts_file(text, "node");
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    assert_eq!(addresses[0].to_string(), "10.0.0.2");
    assert!(in_hosts_file(text, "node2").is_empty());
}

#[test]
fn names_are_looked_for_in_the_domains_of_the_search_list() {
    let server = Server::start(vec![
        ("node.lab", Entry::V4([10, 0, 0, 7])),
        ("a.b", Entry::V4([10, 0, 0, 8])),
    ]);
    let places = places(&[&server]);
    assert_eq!(found("node", &places).unwrap(), ["10.0.0.7"]);
    assert_eq!(found("A.b", &places).unwrap(), ["10.0.0.8"]);
    assert_eq!(found("node.", &places).unwrap_err(), "node. has no address");
    let asked = server.asked.lock().unwrap();
    // Each for IPv4 and, where the name is known, for IPv6.
    let expected = [
        "node.example.org",
        "node.lab",
        "node.lab",
        "A.b",
        "A.b",
        "node",
    ];
    assert_eq!(*asked, expected);
}

#[test]
fn an_alias_leads_to_its_addresses() {
    let server = Server::start(vec![("www.lab", Entry::Alias("real.lab", [10, 0, 0, 9]))]);
    assert_eq!(found("www.lab", &places(&[&server])).unwrap(), ["10.0.0.9"]);
}

#[test]
fn what_does_not_fit_a_datagram_comes_over_a_connection() {
    let server = Server::start(vec![("many.lab", Entry::Many(50))]);
    assert_eq!(found("many.lab", &places(&[&server])).unwrap().len(), 50);
}

#[test]
fn answers_to_other_questions_are_not_believed() {
    let server = Server::start(vec![("node.lab", Entry::Forged([10, 0, 0, 7]))]);
    assert_eq!(
        found("node.lab", &places(&[&server])).unwrap(),
        ["10.0.0.7"]
    );
}

#[test]
fn the_next_server_is_asked_where_one_fails_or_is_silent() {
    let good = Server::start(vec![("node.lab", Entry::V4([10, 0, 0, 7]))]);
    for entry in [Entry::Fails, Entry::Silent] {
        let bad = Server::start(vec![("node.lab", entry)]);
        assert_eq!(
            found("node.lab", &places(&[&bad, &good])).unwrap(),
            ["10.0.0.7"]
        );
    }
    let silent = Server::start(vec![("node.", Entry::Silent), ("node", Entry::Silent)]);
    let begin = Instant::now();
    let error = found("node.", &places(&[&silent])).unwrap_err();
    assert!(
        error.contains("127.0.0.1 about node: no answer in time"),
        "{error}"
    );
    // Two attempts for each kind of address.
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(silent.asked.lock().unwrap().len(), 4);
}

#[test]
fn a_configuration_is_read_as_the_systems_library_reads_it() {
    let text = "# nameserver 1.1.1.1\nnameserver 10.0.0.1\nnameserver nonsense\n\
                nameserver fd00::1\nnameserver 10.0.0.3\nnameserver 10.0.0.4\n\
                domain old.org\nsearch example.org. lab\n\
                options ndots:2 timeout:99 attempts:0 rotate\n";
    let read = Configuration::parse(text);
    let servers: Vec<String> = read.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.1:53", "[fd00::1]:53", "10.0.0.3:53"]);
    assert_eq!(read.search, ["example.org", "lab"]);
    assert_eq!((read.dots, read.attempts), (2, 1));
    assert_eq!(read.timeout, Duration::from_secs(30));
    assert_eq!(
        read.candidates("a.b"),
        ["a.b.example.org", "a.b.lab", "a.b"]
    );
    assert_eq!(read.candidates("a.b.c")[0], "a.b.c");
    assert_eq!(Configuration::parse(""), Configuration::default());
}

#[test]
fn nonsense_from_a_server_is_no_answer() {
    assert!(question(1, &"a.".repeat(200), Kind::V4).is_none());
    assert!(question(1, "a..b", Kind::V4).is_none());
    let asked = question(7, "a", Kind::V4).unwrap();
    let mut reply = asked.clone();
    reply[2] |= 0x80;
    assert_eq!(
        answer(&reply, 7, "a", Kind::V4),
        Some(Answer::Addresses(Vec::new()))
    );
    assert_eq!(answer(&reply, 7, "a", Kind::V6), None);
    // A name that leads to itself, and records that are not there.
    reply[7] = 1;
    assert_eq!(answer(&reply, 7, "a", Kind::V4), None);
    let place = reply.len() as u8;
    reply.extend([0xc0, place, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4]);
    assert_eq!(answer(&reply, 7, "a", Kind::V4), None);
    for length in 0..reply.len() {
        let _ = answer(&reply[..length], 7, "a", Kind::V4);
    }
}
