//! `kungfu-run`, as KungFu has it.
//!
//! kungfu-run is started once on every host and finds out by `-self` or `-nic` which of them it is
//! on. Carole is started once and starts all hosts itself, so it needs neither.
//!
//! Left out: everything that changes a job's size, which is KungFu's watch mode.

use std::ffi::OsString;
use std::time::Duration;

use carole_launch::request::{Hosts, Ranks, Request, Talk, Terminal};

use super::flag::Handling::{Accepted, AcceptedIf, Help, Honoured, Refused};
use super::flag::{Flag, Given};
use super::scan::{Dialect, Launcher};
use super::{Asked, ELASTIC, set_variable, tee_into, unbuffer_python};
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
    about: "Runs a command line of KungFu's kungfu-run.",
    dialect: Dialect::Go,
    flags: &[
        Flag::value(
            &["-np"],
            "N",
            Honoured("that many ranks; 1 by default", |request, given| {
                request.ranks = Ranks::Total(given.count()?);
                Ok(())
            }),
        ),
        Flag::value(
            &["-H"],
            "ip:slots:public,…",
            Honoured(
                "the hosts, their slots, and where they are reached from outside",
                hosts,
            ),
        ),
        Flag::value(
            &["-hostfile"],
            "FILE",
            Honoured("the hosts are in a file", |request, given| {
                request.hosts = Hosts::File(given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["-P"],
            "PEERS",
            Refused {
                why: "Carole gives out ports itself",
                hint: "give hosts and slots: -H 10.0.0.1:4,10.0.0.2:4",
            },
        ),
        Flag::value(
            &["-self"],
            "IP",
            Accepted("no effect: Carole finds out by itself which host it is on"),
        ),
        Flag::value(
            &["-nic"],
            "NAME",
            Honoured(
                "ranks reach one another through this interface",
                |request, given| {
                    let name = given.text()?.to_owned();
                    request.network.interfaces =
                        Some(name).filter(|it| !it.is_empty()).into_iter().collect();
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["-port"],
            "PORT",
            AcceptedIf(
                "no effect: Carole's processes on the hosts talk through SSH",
                |given| given.port().map(drop),
            ),
        ),
        Flag::value(
            &["-port-range"],
            "FIRST-LAST",
            Honoured(
                "ranks and their frameworks listen on these ports only, both ends included",
                ports,
            ),
        ),
        Flag::value(
            &["-u"],
            "USER",
            Honoured("the user for SSH", |request, given| {
                request.ssh.user = Some(given.text()?.to_owned()).filter(|user| !user.is_empty());
                Ok(())
            }),
        ),
        Flag::value(
            &["-strategy"],
            "NAME",
            Honoured(
                "the variable KUNGFU_ALLREDUCE_STRATEGY, for programs that use KungFu. For \
                 Carole, see Choose the way",
                strategy,
            ),
        ),
        Flag::switch(
            &["-allow-nvlink"],
            Honoured(
                "each rank sees all GPUs, and the variable KUNGFU_ALLOW_NVLINK is true",
                nvlink,
            ),
        ),
        Flag::value(
            &["-timeout"],
            "TIME",
            Honoured("the job is stopped after that long", |request, given| {
                request.deadline = Some(duration(given)?).filter(|time| !time.is_zero());
                Ok(())
            }),
        ),
        Flag::value(
            &["-logdir"],
            "DIR",
            Honoured("each rank's output goes to files too", |request, given| {
                tee_into(request, given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["-logfile"],
            "FILE",
            Refused {
                why: "Carole's own log goes to standard error",
                hint: "send it to a file with 2> FILE",
            },
        ),
        Flag::switch(
            &["-q"],
            Honoured(
                "Carole itself says nothing but how the job failed, as carole run --quiet",
                |request, given| {
                    request.output.talk = if switch(given)? {
                        Talk::Quiet
                    } else {
                        Talk::Usual
                    };
                    Ok(())
                },
            ),
        ),
        Flag::switch(
            &["-v"],
            Honoured(
                "with -v=false, what the ranks print is not shown",
                |request, given| {
                    request.output.terminal = if switch(given)? {
                        Terminal::Current
                    } else {
                        Terminal::Files
                    };
                    Ok(())
                },
            ),
        ),
        Flag::switch(
            &["-w"],
            AcceptedIf(
                "no effect if false; otherwise refused: a job's size does not change",
                off,
            ),
        ),
        Flag::switch(
            &["-k"],
            AcceptedIf(
                "no effect if false; otherwise refused: the job ends when its ranks do",
                off,
            ),
        ),
        Flag::value(&["-config-server", "-builtin-config-port"], "URL", WATCH),
        Flag::value(
            &["-init-version", "-elastic-mode", "-auto-recover"],
            "N",
            WATCH,
        ),
        Flag::value(
            &["-t0"],
            "TIME",
            AcceptedIf("no effect: nobody reads it", |given| {
                given.whole::<i64>().map(drop)
            }),
        ),
        Flag::value(
            &["-debug-port"],
            "PORT",
            AcceptedIf("no effect if 0; otherwise refused", no_port),
        ),
        Flag::value(
            &["-delay"],
            "TIME",
            AcceptedIf("no effect if 0; otherwise refused", no_delay),
        ),
        Flag::switch(&["-h", "-help"], Help),
    ],
};

/// Reads the words after `kungfu-run`.
pub(crate) fn parse(words: &[OsString]) -> Result<Asked, Failure> {
    let mut request = Request {
        ranks: Ranks::Total(1),
        // kungfu-run sets CUDA_VISIBLE_DEVICES unless it is told to allow NVLink.
        isolate_gpus: true,
        ..Request::default()
    };
    unbuffer_python(&mut request);
    KUNGFU_RUN.read(words, request, |request, command| {
        Ok(Request { command, ..request })
    })
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
    request.network.ports = Some(given.number("two ports, the lower first", "10000-11000")?);
    Ok(())
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
    use super::super::all_streams;
    use super::super::testing::{answer, compare, message, request, words};
    use super::*;

    fn read(line: &str) -> Request {
        request(parse(&words(line)))
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
        assert_eq!(request.network.ports, "10000-11000".parse().ok());
        assert_eq!(request.ssh.user.as_deref(), Some("me"));
        assert_eq!(request.deadline, Some(Duration::from_secs(4200)));
        assert_eq!(request.output.log_folder, Some("logs".into()));
        assert_eq!(request.output.tee, all_streams());
        assert_eq!(request.output.talk, Talk::Quiet);
        assert_eq!(read("-q=false a").output.talk, Talk::Usual);
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
    fn help_has_every_flag_and_wins_over_what_follows() {
        for line in ["-h", "--help", "-np 2 -help -np x"] {
            let help = answer(parse(&words(line)));
            assert!(help.contains("\n  -port-range FIRST-LAST\n"), "{help}");
            assert!(
                help.contains("\n          refused: Carole gives out"),
                "{help}"
            );
        }
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
