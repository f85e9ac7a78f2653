//! `torchrun`, as PyTorch has it.
//!
//! torchrun is started once on every node; Carole is started once and starts all hosts itself. So
//! what fits is a job on this machine, and a command line for several nodes is answered with how
//! to write it for Carole.
//!
//! Left out: the variables `PET_…`, from which torchrun takes flags that are not given, and
//! `PYTHON_EXEC`.

mod flags;

use std::ffi::OsString;
use std::time::Duration;

use anyhow::anyhow;
use carole_launch::request::{Binding, Ranks, Request, StreamSet, Streams};

use self::flags::TORCHRUN;
use super::flag::Given;
use super::{Asked, ELASTIC, set_variable};
use crate::args::job_name;
use crate::failure::Failure;

/// A command line while it is read.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each stands for a switch of torchrun"
)]
struct Draft {
    request: Request,
    /// The fewest and the most nodes.
    nodes: (usize, usize),
    node_rank: usize,
    /// torchrun meets at `--master-addr`, as without `--rdzv-backend`.
    meets_at_master: bool,
    standalone: bool,
    endpoint: Option<String>,
    id: Option<String>,
    master_address: Option<String>,
    master_port: Option<u16>,
    local_address: Option<String>,
    module: bool,
    no_python: bool,
    run_path: bool,
}

/// Reads the words after `torchrun`. `exists` says whether a program is found in `PATH`.
pub(crate) fn parse(words: &[OsString], exists: impl Fn(&str) -> bool) -> Result<Asked, Failure> {
    let draft = Draft {
        request: Request {
            ranks: Ranks::PerHost(1),
            ..Request::default()
        },
        nodes: (1, 1),
        node_rank: 0,
        meets_at_master: true,
        standalone: false,
        endpoint: None,
        id: None,
        master_address: None,
        master_port: None,
        local_address: None,
        module: false,
        no_python: false,
        run_path: false,
    };
    TORCHRUN.read(words, draft, |mut draft, script| {
        one_node(&draft)?;
        meeting_point(&mut draft)?;
        identity(&mut draft);
        let before = interpreter(&draft, exists)?;
        let before = before.into_iter().map(OsString::from);
        draft.request.command = before.chain(script).collect();
        Ok(draft.request)
    })
}

/// torchrun's own node is the only one that Carole could take the place of.
fn one_node(draft: &Draft) -> Result<(), Failure> {
    let (fewest, most) = draft.nodes;
    if fewest != most {
        return Err(
            Failure::usage(anyhow!("--nnodes {fewest}:{most}: {ELASTIC}"))
                .with_hint(format!("give one number, such as --nnodes {fewest}")),
        );
    }
    let what = match (most, draft.node_rank) {
        (1, 0) => return Ok(()),
        (1, rank) => format!("--node-rank {rank}: there is only node 0"),
        (nodes, _) => format!("--nnodes {nodes}: Carole is not started on every node"),
    };
    let slots = match draft.request.ranks {
        Ranks::PerHost(ranks) => ranks,
        _ => 8,
    };
    Err(Failure::usage(anyhow!(what)).with_hint(format!(
        "start all hosts from one of them: carole run -H a:{slots},b:{slots} -- …"
    )))
}

/// Where the ranks' own frameworks meet. A static rendezvous is there already; any other only leads
/// torchrun to a place that it makes up.
fn meeting_point(draft: &mut Draft) -> Result<(), Failure> {
    let network = &mut draft.request.network;
    if draft.standalone || !draft.meets_at_master {
        network.master_address = draft.local_address.take();
        return Ok(());
    }
    network.master_address = draft.master_address.take();
    network.master_port = draft.master_port;
    let Some(endpoint) = draft
        .endpoint
        .take()
        .filter(|endpoint| !endpoint.is_empty())
    else {
        return Ok(());
    };
    let (address, port) = match endpoint.rsplit_once(':') {
        // The colons of an IPv6 address are not a port's.
        Some((address, port)) if !port.ends_with(']') => (address, Some(port)),
        _ => (&endpoint[..], None),
    };
    if let Some(port) = port {
        let port: u16 = port.parse().map_err(|_| {
            Failure::usage(anyhow!(
                "--rdzv-endpoint is {endpoint:?}, expected HOST:PORT"
            ))
            .with_hint("such as --rdzv-endpoint localhost:29400")
        })?;
        network.master_port = Some(port).filter(|port| *port != 0);
    }
    network.master_address = Some(address.to_owned());
    Ok(())
}

/// An id that can name a job does; any other is told to the ranks alone.
fn identity(draft: &mut Draft) {
    let id = draft.id.take().filter(|_| !draft.standalone);
    match id {
        Some(id) if job_name(&id).is_ok() => draft.request.name = Some(id),
        Some(id) => set_variable(&mut draft.request, "TORCHELASTIC_RUN_ID", Some(id)),
        None => {}
    }
}

/// What stands before the script.
fn interpreter(draft: &Draft, exists: impl Fn(&str) -> bool) -> Result<Vec<&'static str>, Failure> {
    let python = if exists("python") {
        "python"
    } else {
        "python3"
    };
    // Each rank is a process anyway, in which the script is the main program either way.
    if draft.run_path {
        return Ok(vec![python, "-u"]);
    }
    match (draft.no_python, draft.module) {
        (false, false) => Ok(vec![python, "-u"]),
        (false, true) => Ok(vec![python, "-u", "-m"]),
        (true, false) => Ok(Vec::new()),
        (true, true) => Err(Failure::usage(anyhow!(
            "--no-python and --module cannot be used together"
        ))
        .with_hint("a module needs Python: leave out --no-python")),
    }
}

fn nodes(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let text = given.text()?;
    let (fewest, most) = text.split_once(':').unwrap_or((text, text));
    draft.nodes = match (fewest.parse(), most.parse()) {
        (Ok(fewest), Ok(most)) if 0 < fewest && fewest <= most => (fewest, most),
        _ => return Err(given.wrong("a number of nodes, or MIN:MAX", "1")),
    };
    Ok(())
}

fn ranks(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    draft.request.ranks = match given.text()? {
        "auto" => Ranks::PerDevice,
        "gpu" => Ranks::PerGpu,
        "cpu" => Ranks::PerCore,
        "xpu" => {
            return Err(given.refused(
                "Carole does not count this kind of device",
                "give the number, such as --nproc-per-node 4",
            ));
        }
        text => match text.parse() {
            Ok(0) | Err(_) => return Err(given.wrong("a number from 1, auto, cpu or gpu", "4")),
            Ok(ranks) => Ranks::PerHost(ranks),
        },
    };
    Ok(())
}

fn backend(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    match given.text()? {
        "static" => draft.meets_at_master = true,
        "c10d" | "etcd" | "etcd-v2" => draft.meets_at_master = false,
        _ => {
            return Err(given.refused(
                "Carole's ranks meet at its own coordinator",
                "leave --rdzv-backend out",
            ));
        }
    }
    Ok(())
}

/// Of the rendezvous's settings only how long it may take says something to Carole.
fn rendezvous_settings(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let wrong = || given.wrong("settings such as KEY=VALUE,KEY=VALUE", "join_timeout=600");
    let text = given.text()?.trim();
    let settings = text.split(',').filter(|_| !text.is_empty());
    for setting in settings {
        let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(wrong());
        }
        if matches!(key, "join_timeout" | "timeout") {
            let seconds = value.parse().map_err(|_| wrong())?;
            draft.request.start_timeout = Duration::from_secs(seconds);
        }
    }
    Ok(())
}

/// Reads `3`, or `0:1,1:2`: 1 is standard output, 2 standard error.
fn streams(given: &Given) -> Result<Streams, Failure> {
    let wrong = || given.wrong("0 to 3, or RANK:0 to RANK:3 with commas between", "0:1,1:2");
    let set = |text: &str| match text {
        "0" | "1" | "2" | "3" => Ok(StreamSet {
            stdout: matches!(text, "1" | "3"),
            stderr: matches!(text, "2" | "3"),
        }),
        _ => Err(wrong()),
    };
    let text = given.text()?;
    if !text.contains(':') {
        return Ok(Streams {
            others: set(text)?,
            named: Vec::new(),
        });
    }
    let mut streams = Streams::default();
    for part in text.split(',') {
        let (rank, value) = part.split_once(':').ok_or_else(wrong)?;
        let rank = rank.parse().map_err(|_| wrong())?;
        // The last one counts, as in torchrun.
        streams.named.retain(|(other, _)| *other != rank);
        streams.named.push((rank, set(value)?));
    }
    Ok(streams)
}

fn local_ranks(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let text = given.text()?;
    let ranks = text.split(',').filter(|_| !text.is_empty());
    let ranks: Result<Vec<_>, _> = ranks.map(|rank| rank.trim().parse()).collect();
    draft.request.output.only_local_ranks =
        ranks.map_err(|_| given.wrong("local ranks with commas between", "0,1"))?;
    Ok(())
}

fn numa(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    match given.text()? {
        "node" => {
            draft.request.bind = Binding::Numa;
            Ok(())
        }
        "socket" | "exclusive" | "core-complex" => Err(given.refused(
            "Carole does not bind in this way",
            "--numa-binding node binds to NUMA nodes, carole run --bind core to cores",
        )),
        _ => Err(given.wrong("node", "node")),
    }
}

/// Those that end a job anyway.
fn signals(given: &Given) -> Result<(), Failure> {
    let known = |signal: &str| matches!(signal, "SIGTERM" | "SIGINT" | "SIGHUP" | "SIGQUIT");
    if given.text()?.split(',').map(str::trim).all(known) {
        return Ok(());
    }
    Err(given.refused(
        "SIGTERM, SIGINT, SIGHUP and SIGQUIT end a job, others are not passed on",
        "send other signals to the ranks themselves",
    ))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use carole_launch::request::{Hosts, OutputRequest};

    use super::super::testing::{answer, compare, message, request, words};
    use super::*;

    fn read(line: &str) -> Request {
        request(parse(&words(line), |program| program == "python"))
    }

    fn error(line: &str) -> String {
        message(parse(&words(line), |_| true))
    }

    fn command(line: &str) -> String {
        let words = read(line).command;
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn the_page_has_every_flag() {
        compare(
            &TORCHRUN,
            include_str!("../../../../docs/how-to/coming-from-torchrun.md"),
        );
    }

    #[test]
    fn help_has_every_flag() {
        let help = answer(parse(&words("--nproc-per-node 2 -h"), |_| true));
        assert!(help.contains("\n  -t, --tee SPEC\n"), "{help}");
    }

    #[test]
    fn a_script_alone_is_one_rank_here() {
        let expected = Request {
            hosts: Hosts::Here,
            ranks: Ranks::PerHost(1),
            command: words("python -u train.py"),
            ..Request::default()
        };
        assert_eq!(read("train.py"), expected);
    }

    #[test]
    fn torchruns_own_examples_run() {
        let standalone = read(
            "--standalone --nnodes=1 --nproc-per-node=4 \
             YOUR_TRAINING_SCRIPT.py --arg1 --nnodes 2",
        );
        assert_eq!(standalone.ranks, Ranks::PerHost(4));
        assert_eq!(
            standalone.command,
            words("python -u YOUR_TRAINING_SCRIPT.py --arg1 --nnodes 2")
        );
        let stacked = read(
            "--rdzv-backend=c10d --rdzv-endpoint=localhost:0 --nnodes=1 --nproc-per-node=4 \
             YOUR_TRAINING_SCRIPT.py",
        );
        assert_eq!(stacked.network, Request::default().network);
        let tolerant = read(
            "--nnodes=1 --nproc-per-node=2 --max-restarts=3 --rdzv-id=job-7 \
             --rdzv-backend=c10d --rdzv-endpoint=node1.example.com YOUR_TRAINING_SCRIPT.py",
        );
        assert_eq!(tolerant.max_restarts, 3);
        assert_eq!(tolerant.name.as_deref(), Some("job-7"));
    }

    #[test]
    fn underscores_and_beginnings_of_names_are_understood() {
        let long = read("--nproc_per_node 4 --max_restarts=2 --log-d logs a.py");
        assert_eq!(
            (long.ranks, long.max_restarts, long.output.log_folder),
            (Ranks::PerHost(4), 2, Some(PathBuf::from("logs")))
        );
        assert_eq!(read("--nproc 4 a.py").ranks, Ranks::PerHost(4));
        assert!(error("--node 0 --rdzv x a.py").starts_with("error: --rdzv could be more"));
    }

    #[test]
    fn several_nodes_are_answered_with_how_carole_does_it() {
        for line in ["--nnodes=1:4 a.py", "--nnodes 1:4 --standalone a.py"] {
            assert_eq!(
                error(line),
                "error: --nnodes 1:4: elastic sizes are not available yet\n\
                 hint: give one number, such as --nnodes 1\n"
            );
        }
        assert_eq!(
            error("--nnodes 2 --node-rank 1 --nproc-per-node 4 a.py"),
            "error: --nnodes 2: Carole is not started on every node\n\
             hint: start all hosts from one of them: carole run -H a:4,b:4 -- …\n"
        );
        assert!(error("--nnodes 2:2 --nproc-per-node gpu a.py").contains("-H a:8,b:8 --"));
        assert!(error("--node-rank 1 a.py").contains("--node-rank 1: there is only node 0"));
        assert_eq!(read("--nnodes 1:1 --node-rank 0 a.py"), read("a.py"));
        for line in [
            "--nnodes 0 a",
            "--nnodes 4:1 a",
            "--nnodes 1:2:3 a",
            "--nnodes x a",
        ] {
            assert!(
                error(line).contains("expected a number of nodes, or MIN:MAX"),
                "{line}"
            );
        }
    }

    #[test]
    fn ranks_can_be_counted_on_the_machine() {
        for (value, expected) in [
            ("auto", Ranks::PerDevice),
            ("gpu", Ranks::PerGpu),
            ("cpu", Ranks::PerCore),
            ("16", Ranks::PerHost(16)),
        ] {
            assert_eq!(
                read(&format!("--nproc-per-node {value} a.py")).ranks,
                expected
            );
        }
        assert!(error("--nproc-per-node xpu a.py").contains("--nproc-per-node xpu: "));
        assert!(error("--nproc-per-node 0 a.py").contains("is \"0\", expected a number from 1"));
    }

    #[test]
    fn the_script_is_run_as_torchrun_runs_it() {
        for (line, expected) in [
            ("a.py -m", "python -u a.py -m"),
            ("-m package.train --x", "python -u -m package.train --x"),
            ("--module train", "python -u -m train"),
            ("--no-python ./train.sh -x", "./train.sh -x"),
            ("--no_python -- -odd", "-odd"),
            ("--run-path --no-python /abs/a.py", "python -u /abs/a.py"),
        ] {
            assert_eq!(command(line), expected, "{line}");
        }
        let none = request(parse(&words("a.py"), |_| false));
        assert_eq!(none.command, words("python3 -u a.py"));
        assert!(error("-m --no-python a").contains("cannot be used together"));
        assert!(error("--standalone").contains("torchrun was given no program"));
    }

    #[test]
    fn a_static_meeting_point_is_kept_and_others_are_carole_s_to_choose() {
        let network = |line: &str| read(&format!("{line} a.py")).network;
        let given = network("--master-addr 10.0.0.1 --master_port 1234");
        assert_eq!(given.master_address.as_deref(), Some("10.0.0.1"));
        assert_eq!(given.master_port, Some(1234));
        assert_eq!(network("--rdzv-endpoint 10.0.0.1:1234"), given);
        let address = network("--rdzv-endpoint [::1]").master_address;
        assert_eq!(address.as_deref(), Some("[::1]"));
        assert_eq!(network("--master-port 0").master_port, None);
        for ignored in ["--standalone", "--rdzv-backend c10d"] {
            let line = format!("{ignored} --master-addr a --master-port 1 --rdzv-endpoint b:2");
            assert_eq!(network(&line), Request::default().network, "{ignored}");
        }
        let local = network("--rdzv-backend c10d --local-addr node1").master_address;
        assert_eq!(local.as_deref(), Some("node1"));
        assert!(error("--rdzv-endpoint a:b a.py").contains("expected HOST:PORT"));
        assert!(error("--rdzv-backend zookeeper a.py").contains("--rdzv-backend zookeeper: "));
    }

    #[test]
    fn an_id_names_the_job_if_it_can() {
        assert_eq!(read("--rdzv-id 100 a.py").name.as_deref(), Some("100"));
        let odd = read("--rdzv-id my_job a.py");
        assert_eq!(odd.name, None);
        let expected = ("TORCHELASTIC_RUN_ID".to_owned(), Some("my_job".to_owned()));
        assert_eq!(odd.variables, [expected]);
        assert_eq!(read("--standalone --rdzv-id 100 a.py").name, None);
    }

    #[test]
    fn times_and_the_role_are_kept() {
        let request = read(
            "--rdzv-conf timeout=60,is_host=1 --role trainer --shutdown-timeout 5 \
             --monitor-interval 0.5 --start-method fork --event-log-handler console \
             --signals-to-handle SIGTERM,SIGINT a.py",
        );
        let role = ("ROLE_NAME".to_owned(), Some("trainer".to_owned()));
        assert_eq!(request.variables, [role]);
        assert_eq!(request.start_timeout, Duration::from_secs(60));
        assert_eq!(request.grace, Duration::from_secs(5));
        assert!(error("--rdzv-conf timeout a.py").contains("expected settings such as"));
        assert!(error("--start-method x a.py").contains("expected spawn, fork or forkserver"));
        assert!(error("--monitor-interval x a.py").contains("expected a number of seconds"));
        assert!(error("--signals-to-handle SIGUSR1 a.py").contains("SIGUSR1: SIGTERM, SIGINT"));
        assert!(error("--max-restarts -1 a.py").contains("is \"-1\", expected a whole number"));
    }

    #[test]
    fn output_goes_where_torchrun_sends_it() {
        let both = StreamSet {
            stdout: true,
            stderr: true,
        };
        let only_stdout = StreamSet {
            stdout: true,
            stderr: false,
        };
        let request = read("--log-dir logs -r 0:1,12:3 -t3 --local-ranks-filter 0,2 a.py");
        let expected = OutputRequest {
            log_folder: Some("logs".into()),
            redirect: Streams {
                others: StreamSet::default(),
                named: vec![(0, only_stdout), (12, both)],
            },
            tee: Streams {
                others: both,
                named: Vec::new(),
            },
            only_local_ranks: vec![0, 2],
            ..OutputRequest::default()
        };
        assert_eq!(request.output, expected);
        for line in ["-r 4 a", "-r 0:4 a", "-r 0:1, a", "-r x:1 a", "-t= a"] {
            assert!(
                error(line).contains("expected 0 to 3, or RANK:0 to RANK:3"),
                "{line}"
            );
        }
        assert!(error("--local-ranks-filter a a").contains("expected local ranks"));
    }

    #[test]
    fn binding_to_numa_nodes_is_kept() {
        assert_eq!(read("--numa-binding node a.py").bind, Binding::Numa);
        assert!(error("--numa-binding socket a.py").contains("hint: --numa-binding node"));
        assert!(error("--numa-binding x a.py").contains("expected node"));
    }

    #[test]
    fn what_is_not_there_is_refused_and_a_slip_is_named() {
        for flag in [
            "--logs-specs x",
            "--virtual_local_rank",
            "--duplicate-stdout-filters x",
        ] {
            let name = flag.split(' ').next().unwrap();
            let message = error(&format!("{flag} a.py"));
            assert!(
                message.starts_with(&format!("error: {name}: ")),
                "{message}"
            );
            assert!(message.contains("\nhint: "), "{message}");
        }
        assert_eq!(
            error("--nproc-pre-node 4 a.py"),
            "error: --nproc-pre-node is no flag of torchrun that Carole knows\n\
             hint: the nearest flag is --nproc-per-node\n"
        );
    }
}
