//! `kungfu-run`, as KungFu has it.
//!
//! kungfu-run is started once on every host and finds out by `-self` or `-nic` which of them it is
//! on. Carole is started once and starts all hosts itself, so it needs neither.
//!
//! Left out: everything that changes a job's size, which is KungFu's watch mode.

use std::ffi::OsString;
use std::time::Duration;

use carole_launch::request::{Hosts, Ranks, Request, Terminal};

use super::flag::Handling::{Accepted, AcceptedIf, Honoured, Refused};
use super::flag::{Flag, Given};
use super::scan::{Dialect, Launcher};
use super::{ELASTIC, all_streams, set_variable};
use crate::failure::Failure;

const STRATEGIES: [&str; 9] = [
    "STAR",
    "MULTI_STAR",
    "RING",
    "CLIQUE",
    "TREE",
    "BINARY_TREE",
    "BINARY_TREE_STAR",
    "MULTI_BINARY_TREE_STAR",
    "AUTO",
];

/// What is refused because the size of a job is fixed.
const WATCH: super::flag::Handling<Request> = Refused {
    why: ELASTIC,
    hint: "leave it out: the job then keeps the size of -np",
};

static KUNGFU_RUN: Launcher<Request> = Launcher {
    name: "kungfu-run",
    dialect: Dialect::Go,
    flags: &[
        Flag::value(
            &["-np"],
            Honoured(|request, given| {
                request.ranks = Ranks::Total(given.count()?);
                Ok(())
            }),
        ),
        Flag::value(&["-H"], Honoured(hosts)),
        Flag::value(
            &["-hostfile"],
            Honoured(|request, given| {
                request.hosts = Hosts::File(given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["-P"],
            Refused {
                why: "Carole gives out ports itself",
                hint: "give hosts and slots: -H 10.0.0.1:4,10.0.0.2:4",
            },
        ),
        Flag::value(&["-self"], Accepted),
        Flag::value(
            &["-nic"],
            Honoured(|request, given| {
                let name = given.text()?.to_owned();
                request.network.interfaces =
                    Some(name).filter(|it| !it.is_empty()).into_iter().collect();
                Ok(())
            }),
        ),
        Flag::value(&["-port"], AcceptedIf(|given| given.port().map(drop))),
        Flag::value(&["-port-range"], Honoured(ports)),
        Flag::value(
            &["-u"],
            Honoured(|request, given| {
                request.ssh.user = Some(given.text()?.to_owned()).filter(|user| !user.is_empty());
                Ok(())
            }),
        ),
        Flag::value(&["-strategy"], Honoured(strategy)),
        Flag::switch(&["-allow-nvlink"], Honoured(nvlink)),
        Flag::value(
            &["-timeout"],
            Honoured(|request, given| {
                request.deadline = Some(duration(given)?).filter(|time| !time.is_zero());
                Ok(())
            }),
        ),
        Flag::value(
            &["-logdir"],
            Honoured(|request, given| {
                request.output.log_folder = Some(given.path());
                request.output.tee = all_streams();
                Ok(())
            }),
        ),
        Flag::value(
            &["-logfile"],
            Refused {
                why: "Carole's own log goes to standard error",
                hint: "send it to a file with 2> FILE",
            },
        ),
        Flag::switch(
            &["-q"],
            Honoured(|request, given| {
                request.output.quiet = switch(given)?;
                Ok(())
            }),
        ),
        Flag::switch(
            &["-v"],
            Honoured(|request, given| {
                request.output.terminal = if switch(given)? {
                    Terminal::Current
                } else {
                    Terminal::Files
                };
                Ok(())
            }),
        ),
        Flag::switch(&["-w", "-k"], AcceptedIf(off)),
        Flag::value(&["-config-server", "-builtin-config-port"], WATCH),
        Flag::value(&["-init-version", "-elastic-mode", "-auto-recover"], WATCH),
        Flag::value(&["-t0"], AcceptedIf(|given| given.whole::<i64>().map(drop))),
        Flag::value(&["-debug-port"], AcceptedIf(no_port)),
        Flag::value(&["-delay"], AcceptedIf(no_delay)),
        Flag::switch(
            &["-h", "-help"],
            Refused {
                why: "carole kungfu-run has no help of its own",
                hint: "docs/how-to/coming-from-kungfu-run.md lists the flags",
            },
        ),
    ],
};

/// Reads the words after `kungfu-run`.
pub(crate) fn parse(words: &[OsString]) -> Result<Request, Failure> {
    let mut request = Request {
        ranks: Ranks::Total(1),
        // kungfu-run sets CUDA_VISIBLE_DEVICES unless it is told to allow NVLink.
        isolate_gpus: true,
        ..Request::default()
    };
    set_variable(&mut request, "PYTHONUNBUFFERED", Some("1".to_owned()));
    request.command = KUNGFU_RUN.scan(words, &mut request)?;
    Ok(request)
}

/// A host file wins, wherever it stands.
fn hosts(request: &mut Request, given: &Given) -> Result<(), Failure> {
    let hosts = given.text()?;
    if !matches!(request.hosts, Hosts::File(_)) {
        request.hosts = Hosts::List(hosts.to_owned());
    }
    Ok(())
}

/// Reads `10000-11000`, both ends included.
fn ports(request: &mut Request, given: &Given) -> Result<(), Failure> {
    let ends = given.text()?.split_once('-');
    let ends = ends.and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    match ends {
        Some((first, last)) if 0 < first && first <= last => {
            request.network.ports = Some((first, last));
            Ok(())
        }
        _ => Err(given.wrong("two ports, the lower first", "10000-11000")),
    }
}

/// The variable is what kungfu-run tells KungFu in.
fn strategy(request: &mut Request, given: &Given) -> Result<(), Failure> {
    let name = given.text()?;
    if !STRATEGIES.contains(&name) {
        return Err(given.wrong(&format!("one of {}", STRATEGIES.join(", ")), "RING"));
    }
    set_variable(request, "KUNGFU_ALLREDUCE_STRATEGY", Some(name.to_owned()));
    Ok(())
}

/// With NVLink each rank sees all GPUs, and KungFu is told so.
fn nvlink(request: &mut Request, given: &Given) -> Result<(), Failure> {
    let allowed = switch(given)?;
    request.isolate_gpus = !allowed;
    set_variable(request, "KUNGFU_ALLOW_NVLINK", Some(allowed.to_string()));
    Ok(())
}

/// Whether a switch is on. `-flag` alone is, and `-flag=…` says it in Go's words.
fn switch(given: &Given) -> Result<bool, Failure> {
    if given.values.is_empty() {
        return Ok(true);
    }
    match given.text()? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        value => Err(Given {
            name: format!("{}={value}", given.name),
            values: Vec::new(),
        }
        .refused("a switch is true or false", "leave out the value")),
    }
}

fn off(given: &Given) -> Result<(), Failure> {
    if switch(given)? {
        return Err(given.refused(ELASTIC, "leave it out: the job then keeps the size of -np"));
    }
    Ok(())
}

fn no_port(given: &Given) -> Result<(), Failure> {
    match given.whole::<u16>()? {
        0 => Ok(()),
        _ => Err(given.refused("Carole has no server for debugging", "leave it out")),
    }
}

fn no_delay(given: &Given) -> Result<(), Failure> {
    if duration(given)?.is_zero() {
        return Ok(());
    }
    Err(given.refused("Carole starts at once", "sleep before: sleep 5; carole …"))
}

/// Reads a time as Go writes it: `300ms`, `1.5h`, `1h10m`, or `0`.
fn duration(given: &Given) -> Result<Duration, Failure> {
    let wrong = || given.wrong("a time such as 500ms, 10s or 1h30m", "10s");
    let mut rest = given.text()?;
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, after) = rest.split_at(digits.ok_or_else(wrong)?);
        let letters = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(letters.unwrap_or(after.len()));
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        seconds += number.parse::<f64>().map_err(|_| wrong())? * unit;
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{compare, message, words};
    use super::*;

    fn read(line: &str) -> Request {
        parse(&words(line)).unwrap()
    }

    fn error(line: &str) -> String {
        message(parse(&words(line)))
    }

    fn variable(line: &str, name: &str) -> Option<String> {
        let variables = read(line).variables;
        variables.into_iter().find(|(other, _)| other == name)?.1
    }

    #[test]
    fn the_page_has_every_flag() {
        compare(
            &KUNGFU_RUN,
            include_str!("../../../../docs/how-to/coming-from-kungfu-run.md"),
        );
    }

    #[test]
    fn kungfus_own_examples_run() {
        let expected = Request {
            ranks: Ranks::Total(4),
            isolate_gpus: true,
            variables: vec![("PYTHONUNBUFFERED".into(), Some("1".into()))],
            command: words("python3 examples/tf1_mnist_session.py --data-dir=./mnist"),
            ..Request::default()
        };
        let line = "-np 4 python3 examples/tf1_mnist_session.py --data-dir=./mnist";
        assert_eq!(read(line), expected);
        let two = read(
            "-np 16 -H 192.168.0.1:8,192.168.0.2:8 -nic eth0 \
             python3 examples/tf1_mnist_session.py --data-dir=./mnist",
        );
        let list = "192.168.0.1:8,192.168.0.2:8".to_owned();
        assert_eq!(
            (two.hosts, two.ranks),
            (Hosts::List(list), Ranks::Total(16))
        );
        assert_eq!(two.network.interfaces, ["eth0"]);
        let nvlink = read("-np 4 -allow-nvlink python3 benchmarks/system/benchmark_kungfu.py");
        assert!(!nvlink.isolate_gpus);
        assert_eq!(
            nvlink.command,
            words("python3 benchmarks/system/benchmark_kungfu.py")
        );
    }

    #[test]
    fn flags_have_one_dash_or_two_and_the_last_counts() {
        for line in [
            "-np 4 a",
            "--np=4 a",
            "-np=4 a",
            "--np 4 a",
            "-np 2 -np 4 a",
        ] {
            assert_eq!(read(line).ranks, Ranks::Total(4), "{line}");
        }
        assert_eq!(read("a -np 4").ranks, Ranks::Total(1));
        assert_eq!(read("-np 4 -- -a").command, words("-a"));
        assert!(error("-np=4").contains("kungfu-run was given no program"));
    }

    #[test]
    fn a_host_file_wins_over_a_list() {
        let file = Hosts::File("hosts".into());
        for line in ["-H a:2 -hostfile hosts a", "-hostfile hosts -H a:2 a"] {
            assert_eq!(read(line).hosts, file, "{line}");
        }
    }

    #[test]
    fn everything_in_the_inventory_is_kept() {
        let request = read(
            "-q -np 4 -H 10.0.0.1:2:a.example,10.0.0.2:2:b.example -self 10.0.0.1 -port 38080 \
             -port-range 10000-11000 -u me -strategy RING -timeout 1h10m -logdir logs -t0 12 a",
        );
        assert_eq!(request.network.ports, Some((10000, 11000)));
        assert_eq!(request.ssh.user.as_deref(), Some("me"));
        assert_eq!(request.deadline, Some(Duration::from_secs(4200)));
        assert_eq!(request.output.log_folder, Some("logs".into()));
        assert_eq!(request.output.tee, all_streams());
        assert!(request.output.quiet);
        assert_eq!(read("-v=false a").output.terminal, Terminal::Files);
        assert_eq!(read("-v a").output.terminal, Terminal::Current);
    }

    #[test]
    fn kungfu_is_told_in_its_own_variables() {
        let strategy = "KUNGFU_ALLREDUCE_STRATEGY";
        assert_eq!(
            variable("-strategy RING a", strategy).as_deref(),
            Some("RING")
        );
        assert_eq!(variable("a", strategy), None);
        let nvlink = "KUNGFU_ALLOW_NVLINK";
        assert_eq!(variable("-allow-nvlink a", nvlink).as_deref(), Some("true"));
        assert_eq!(
            variable("-allow-nvlink=0 a", nvlink).as_deref(),
            Some("false")
        );
        assert!(error("-strategy ring a").contains("expected one of STAR, MULTI_STAR, RING"));
    }

    #[test]
    fn times_are_written_as_go_writes_them() {
        let deadline = |text: &str| read(&format!("-timeout {text} a")).deadline;
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("300ms", 300),
            ("1.5h", 5_400_000),
            ("2h45m", 9_900_000),
            ("1m0.5s", 60_500),
        ] {
            assert_eq!(
                deadline(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for none in ["0", "0s"] {
            assert_eq!(deadline(none), None, "{none}");
        }
        for text in [
            "10",
            "-1s",
            "s",
            "1d",
            "1s2",
            "1..2s",
            "99999999999999999999h",
        ] {
            let message = error(&format!("-timeout {text} a"));
            assert!(
                message.contains(&format!("is {text:?}, expected a time")),
                "{message}"
            );
        }
    }

    #[test]
    fn watch_mode_is_refused_unless_it_is_off() {
        for flag in [
            "-w",
            "-k",
            "-w=true",
            "-config-server http://a/get",
            "-init-version 1",
        ] {
            let message = error(&format!("{flag} a"));
            assert!(
                message.contains(": elastic sizes are not available yet\n"),
                "{message}"
            );
        }
        assert_eq!(read("-w=false -k=0 -debug-port 0 -delay 0s a"), read("a"));
        assert!(error("-w=maybe a").contains("-w=maybe: a switch is true or false"));
    }

    #[test]
    fn what_is_wrong_or_not_there_is_named() {
        for (line, expected) in [
            ("-np 0 a", "-np is \"0\", expected a whole number from 1"),
            ("-port-range 5-1 a", "expected two ports, the lower first"),
            ("-port-range 5 a", "expected two ports, the lower first"),
            ("-port x a", "expected a port from 1 to 65535"),
            ("-P a:1 a", "-P: Carole gives out ports itself"),
            ("-logfile f a", "-logfile: Carole's own log"),
            ("-debug-port 9 a", "-debug-port 9: Carole has no server"),
            ("-delay 5s a", "-delay 5s: Carole starts at once"),
            ("-help", "-help: carole kungfu-run has no help"),
        ] {
            assert!(error(line).contains(expected), "{line}: {}", error(line));
        }
        assert_eq!(
            error("-hostfiles f a"),
            "error: -hostfiles is no flag of kungfu-run that Carole knows\n\
             hint: the nearest flag is -hostfile\n"
        );
    }
}
