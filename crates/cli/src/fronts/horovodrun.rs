//! `horovodrun`, as Horovod has it.
//!
//! What horovodrun tells Horovod itself, it tells in variables, and Carole gives the ranks the same
//! ones: a program may still use Horovod.
//!
//! Left out: hosts from LSF where none are given, and the file of `--config-file`.

mod tuning;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use carole_launch::request::{DefaultSlots, Hosts, Ranks, Request, Talk};

use super::flag::Handling::{Accepted, AcceptedIf, Help, Honoured, Refused, Sets, Version};
use super::flag::{Flag, Given};
use super::scan::{Dialect, Launcher};
use super::{Asked, ELASTIC, tee_into, unbuffer_python};
use crate::failure::Failure;

/// A command line while it is read.
#[derive(Default)]
struct Draft {
    request: Request,
    ranks: Option<usize>,
    fewest: Option<usize>,
    most: Option<usize>,
    hosts: Option<String>,
    host_file: Option<PathBuf>,
    discovery: Option<PathBuf>,
    gloo: bool,
    autotune: bool,
}

static HOROVODRUN: Launcher<Draft> = Launcher {
    name: "horovodrun",
    about: "Runs a horovodrun command line.",
    dialect: Dialect::Argparse { underscores: false },
    flags: &[
        Flag::value(
            &["-np", "--num-proc"],
            "N",
            Honoured("that many ranks", |draft, given| {
                draft.ranks = Some(given.count()?);
                Ok(())
            }),
        ),
        Flag::value(
            &["-H", "--hosts"],
            "a:4,b:4",
            Honoured(
                "the hosts and their slots; without any, this machine",
                |draft, given| {
                    draft.hosts = Some(given.text()?.to_owned());
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["-hostfile", "--hostfile"],
            "FILE",
            Honoured("the hosts are in a file", |draft, given| {
                draft.host_file = Some(given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["--host-discovery-script"],
            "FILE",
            Honoured("a program prints the hosts, one a line", |draft, given| {
                draft.discovery = Some(given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["--slots-per-host"],
            "N",
            Honoured(
                "the slots of a host for which none are given",
                |draft, given| {
                    let slots = u16::try_from(given.count()?);
                    let slots = slots.map_err(|_| given.wrong("a number from 1 to 65535", "4"))?;
                    draft.request.default_slots = DefaultSlots::Number(slots);
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--min-np", "--min-num-proc"],
            "N",
            Honoured("must be equal to -np", |draft, given| {
                draft.fewest = Some(given.count()?);
                Ok(())
            }),
        ),
        Flag::value(
            &["--max-np", "--max-num-proc"],
            "N",
            Honoured("must be equal to -np", |draft, given| {
                draft.most = Some(given.count()?);
                Ok(())
            }),
        ),
        Flag::value(
            &["--elastic-timeout", "--reset-limit"],
            "SECONDS",
            AcceptedIf("no effect: a job's size does not change", |given| {
                given.whole::<u32>().map(drop)
            }),
        ),
        Flag::pair(
            &["--blacklist-cooldown-range"],
            "MIN MAX",
            Accepted("no effect: a job's hosts do not change"),
        ),
        Flag::value(
            &["-p", "--ssh-port"],
            "PORT",
            Honoured("the port of ssh on the hosts", |draft, given| {
                draft.request.ssh.port = Some(given.port()?);
                Ok(())
            }),
        ),
        Flag::value(
            &["-i", "--ssh-identity-file"],
            "FILE",
            Honoured("the key for ssh", |draft, given| {
                draft.request.ssh.identity = Some(given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["--network-interfaces", "--network-interface"],
            "NAMES",
            Honoured("ranks reach one another through these", interfaces),
        ),
        Flag::value(
            &["--output-filename"],
            "DIR",
            Honoured("each rank's output goes to files too", |draft, given| {
                tee_into(&mut draft.request, given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["--start-timeout"],
            "SECONDS",
            Honoured("how long the start may take", |draft, given| {
                draft.request.start_timeout = given.seconds()?;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--verbose"],
            Honoured("Carole says every step it takes", |draft, _| {
                draft.request.output.talk = Talk::Verbose;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--disable-cache"],
            Accepted("no effect: nothing is cached"),
        ),
        Flag::switch(
            &["--gloo"],
            Honoured("ranks are started by Carole, as without it", |draft, _| {
                draft.gloo = true;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--mpi"],
            Honoured(
                "the installed MPI starts the ranks, as carole run --mpi",
                |draft, _| {
                    draft.request.mpi = true;
                    Ok(())
                },
            ),
        ),
        Flag::switch(
            &["--jsrun"],
            Refused {
                why: "Carole starts the ranks itself",
                hint: "leave it out, or let the installed MPI start them: --mpi",
            },
        ),
        Flag::value(
            &["--mpi-args", "--binding-args"],
            "ARGS",
            Refused {
                why: "Carole does not pass flags on to mpirun",
                hint: "carole mpirun takes mpirun's flags, and carole run has --bind",
            },
        ),
        Flag::value(
            &["--fusion-threshold-mb"],
            "N",
            Honoured("HOROVOD_FUSION_THRESHOLD, in bytes", tuning::fusion),
        ),
        Flag::value(
            &["--cycle-time-ms"],
            "N",
            Sets("HOROVOD_CYCLE_TIME", tuning::cycle),
        ),
        Flag::value(
            &["--cache-capacity"],
            "N",
            Sets("HOROVOD_CACHE_CAPACITY", tuning::number),
        ),
        Flag::switch(
            &["--hierarchical-allreduce"],
            Sets("HOROVOD_HIERARCHICAL_ALLREDUCE=1", tuning::exactly),
        ),
        Flag::switch(
            &["--no-hierarchical-allreduce"],
            Sets("HOROVOD_HIERARCHICAL_ALLREDUCE=0", tuning::exactly),
        ),
        Flag::switch(
            &["--hierarchical-allgather"],
            Sets("HOROVOD_HIERARCHICAL_ALLGATHER=1", tuning::exactly),
        ),
        Flag::switch(
            &["--no-hierarchical-allgather"],
            Sets("HOROVOD_HIERARCHICAL_ALLGATHER=0", tuning::exactly),
        ),
        Flag::switch(
            &["--autotune"],
            Honoured(
                "HOROVOD_AUTOTUNE=1; without it the other flags of --autotune-… have no effect",
                |draft, given| {
                    draft.autotune = true;
                    tuning::exactly(draft, given, "HOROVOD_AUTOTUNE=1")
                },
            ),
        ),
        Flag::switch(
            &["--no-autotune"],
            Honoured("takes --autotune back", |draft, _| {
                draft.autotune = false;
                Ok(())
            }),
        ),
        Flag::value(
            &["--autotune-log-file"],
            "FILE",
            Sets("HOROVOD_AUTOTUNE_LOG", tuning::text),
        ),
        Flag::value(
            &["--autotune-warmup-samples"],
            "N",
            Sets("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", tuning::number),
        ),
        Flag::value(
            &["--autotune-steps-per-sample"],
            "N",
            Sets("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", tuning::number),
        ),
        Flag::value(
            &["--autotune-bayes-opt-max-samples"],
            "N",
            Sets("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", tuning::number),
        ),
        Flag::value(
            &["--autotune-gaussian-process-noise"],
            "N",
            Sets("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", tuning::noise),
        ),
        Flag::value(
            &["--timeline-filename"],
            "FILE",
            Honoured(
                "HOROVOD_TIMELINE; if the program uses Carole, its timeline of rank 0 goes there",
                tuning::timeline,
            ),
        ),
        Flag::switch(
            &["--timeline-mark-cycles"],
            Honoured(
                "HOROVOD_TIMELINE_MARK_CYCLES=1, if there is a timeline",
                |draft, given| tuning::exactly(draft, given, "HOROVOD_TIMELINE_MARK_CYCLES=1"),
            ),
        ),
        Flag::switch(
            &["--no-timeline-mark-cycles"],
            Honoured(
                "HOROVOD_TIMELINE_MARK_CYCLES=0, if there is a timeline",
                |draft, given| tuning::exactly(draft, given, "HOROVOD_TIMELINE_MARK_CYCLES=0"),
            ),
        ),
        Flag::switch(
            &["--no-stall-check"],
            Sets("HOROVOD_STALL_CHECK_DISABLE=1", tuning::exactly),
        ),
        Flag::switch(
            &["--stall-check"],
            Sets("HOROVOD_STALL_CHECK_DISABLE=0", tuning::exactly),
        ),
        Flag::value(
            &["--stall-check-warning-time-seconds"],
            "N",
            Sets("HOROVOD_STALL_CHECK_TIME_SECONDS", tuning::number),
        ),
        Flag::value(
            &["--stall-check-shutdown-time-seconds"],
            "N",
            Sets("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", tuning::number),
        ),
        Flag::switch(
            &["--mpi-threads-disable"],
            Sets("HOROVOD_MPI_THREADS_DISABLE=1", tuning::exactly),
        ),
        Flag::switch(
            &["--no-mpi-threads-disable"],
            Sets("HOROVOD_MPI_THREADS_DISABLE=0", tuning::exactly),
        ),
        Flag::switch(&["--tcp"], Sets("NCCL_IB_DISABLE=1", tuning::exactly)),
        Flag::value(
            &["--num-nccl-streams"],
            "N",
            Sets("HOROVOD_NUM_NCCL_STREAMS", tuning::number),
        ),
        Flag::value(
            &["--thread-affinity"],
            "N",
            Sets("HOROVOD_THREAD_AFFINITY", tuning::number),
        ),
        Flag::value(
            &["--gloo-timeout-seconds"],
            "N",
            Sets("HOROVOD_GLOO_TIMEOUT_SECONDS", tuning::number),
        ),
        Flag::value(
            &["--log-level"],
            "LEVEL",
            Sets("HOROVOD_LOG_LEVEL", tuning::log_level),
        ),
        Flag::switch(
            &["--log-with-timestamp", "--no-log-hide-timestamp"],
            Sets("HOROVOD_LOG_HIDE_TIME=0", tuning::exactly),
        ),
        Flag::switch(
            &["--log-without-timestamp", "--log-hide-timestamp"],
            Sets("HOROVOD_LOG_HIDE_TIME=1", tuning::exactly),
        ),
        Flag::switch(
            &["-prefix-timestamp", "--prefix-output-with-timestamp"],
            Refused {
                why: "Carole does not write times before lines",
                hint: "leave it out",
            },
        ),
        Flag::value(
            &["--config-file"],
            "FILE",
            Refused {
                why: "Carole does not read Horovod's settings from a file",
                hint: "give them as flags, such as --fusion-threshold-mb 32",
            },
        ),
        Flag::switch(
            &["-cb", "--check-build"],
            Refused {
                why: "it is a question about Horovod, not about Carole",
                hint: "horovodrun --check-build answers it",
            },
        ),
        Flag::switch(&["-h", "--help"], Help),
        Flag::switch(&["-v", "--version"], Version),
    ],
};

/// Reads the words after `horovodrun`.
pub(crate) fn parse(words: &[OsString]) -> Result<Asked, Failure> {
    let mut draft = Draft::default();
    unbuffer_python(&mut draft.request);
    HOROVODRUN.read(words, draft, finish)
}

fn finish(mut draft: Draft, command: Vec<OsString>) -> Result<Request, Failure> {
    draft.request.command = command;
    draft.request.ranks = Ranks::Total(size(&draft)?);
    draft.request.hosts = hosts(&mut draft)?;
    if draft.gloo && draft.request.mpi {
        return Err(
            Failure::usage(anyhow!("--gloo and --mpi cannot be used together"))
                .with_hint("--mpi lets the installed MPI start the ranks; leave one out"),
        );
    }
    tuning::drop_idle(&mut draft);
    Ok(draft.request)
}

/// How many ranks there are, while that cannot change.
fn size(draft: &Draft) -> Result<usize, Failure> {
    let Some(ranks) = draft.ranks else {
        return Err(Failure::usage(anyhow!("horovodrun needs -np"))
            .with_hint("say how many ranks there are, such as -np 4"));
    };
    let fewest = draft.fewest.unwrap_or(ranks);
    let most = draft.most.unwrap_or(ranks);
    if (fewest, most) == (ranks, ranks) {
        return Ok(ranks);
    }
    Err(Failure::usage(anyhow!(
        "{ranks} ranks, {fewest} at least and {most} at most: {ELASTIC}"
    ))
    .with_hint(format!(
        "leave out --min-np and --max-np, or make both {ranks}"
    )))
}

fn hosts(draft: &mut Draft) -> Result<Hosts, Failure> {
    let list = draft.hosts.take();
    let file = draft.host_file.take();
    let script = draft.discovery.take();
    match (list, file, script) {
        (None, None, None) => Ok(Hosts::Here),
        (Some(list), None, None) => Ok(Hosts::List(list)),
        (None, Some(file), None) => Ok(Hosts::File(file)),
        (None, None, Some(script)) => Ok(Hosts::Script(script)),
        _ => Err(Failure::usage(anyhow!(
            "--hosts, --hostfile and --host-discovery-script cannot be used together"
        ))
        .with_hint("give the hosts in one of them")),
    }
}

/// Adds interfaces, each once.
fn interfaces(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let known = &mut draft.request.network.interfaces;
    for name in given.text()?.split(',').map(str::trim) {
        if name.is_empty() {
            return Err(given.wrong("interfaces with commas between", "eth0,eth1"));
        }
        if !known.iter().any(|other| other == name) {
            known.push(name.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::all_streams;
    use super::super::testing::{answer, compare, message, request, words};
    use super::*;

    fn read(line: &str) -> Request {
        request(parse(&words(line)))
    }

    fn error(line: &str) -> String {
        message(parse(&words(line)))
    }

    #[test]
    fn the_page_has_every_flag() {
        compare(
            &HOROVODRUN,
            include_str!("../../../../docs/how-to/coming-from-horovodrun.md"),
        );
    }

    #[test]
    fn horovods_own_examples_run() {
        let here = Request {
            ranks: Ranks::Total(4),
            variables: vec![("PYTHONUNBUFFERED".into(), Some("1".into()))],
            command: words("python train.py"),
            ..Request::default()
        };
        assert_eq!(read("-np 4 python train.py"), here);
        let list = "server1:4,server2:4,server3:4,server4:4";
        let expected = Request {
            hosts: Hosts::List(list.into()),
            ranks: Ranks::Total(16),
            ..here.clone()
        };
        assert_eq!(read(&format!("-np 16 -H {list} python train.py")), expected);
        let expected = Request {
            hosts: Hosts::File("myhostfile".into()),
            ranks: Ranks::Total(6),
            ..here.clone()
        };
        assert_eq!(read("-np 6 -hostfile myhostfile python train.py"), expected);
        let expected = Request {
            hosts: Hosts::Script("discover_hosts.sh".into()),
            ranks: Ranks::Total(8),
            default_slots: DefaultSlots::Number(4),
            ..here
        };
        let line = "-np 8 --host-discovery-script discover_hosts.sh --slots 4 python train.py";
        assert_eq!(read(line), expected);
    }

    #[test]
    fn sizes_that_may_change_are_refused_and_equal_bounds_are_not() {
        assert_eq!(
            error("-np 8 --min-np 4 --max-np 12 --host-discovery-script d python train.py"),
            "error: 8 ranks, 4 at least and 12 at most: elastic sizes are not available yet\n\
             hint: leave out --min-np and --max-np, or make both 8\n"
        );
        for line in ["-np 4 --min-np 2 a", "-np 4 --max-num-proc 8 a"] {
            assert!(
                error(line).contains("elastic sizes are not available yet"),
                "{line}"
            );
        }
        let equal = "-np 4 --min-num-proc 4 --max-np 4 --reset-limit 3 --elastic-timeout 60 \
                     --blacklist-cooldown-range 60 300 a";
        assert_eq!(read(equal), read("-np 4 a"));
    }

    #[test]
    fn ssh_interfaces_output_and_times_are_kept() {
        let request = read(
            "-np 2 -p 12345 -i key --network-interfaces eth0,eth1 --network-interface eth1 \
             --output-filename logs --start-timeout 60 --verbose --disable-cache --gloo a",
        );
        assert_eq!(request.ssh.port, Some(12345));
        assert_eq!(request.ssh.identity, Some("key".into()));
        assert_eq!(request.network.interfaces, ["eth0", "eth1"]);
        assert_eq!(request.output.log_folder, Some("logs".into()));
        assert_eq!(request.output.tee, all_streams());
        assert_eq!(request.start_timeout, Duration::from_secs(60));
        assert!(!request.mpi);
        assert_eq!(request.output.talk, Talk::Verbose);
        assert!(read("-np 2 --mpi a").mpi);
        assert_eq!(read("-np 2 -p12345 a").ssh.port, Some(12345));
    }

    #[test]
    fn flags_of_the_program_are_its_own() {
        let request = read("-np 2 python train.py -np 3 --mpi");
        assert_eq!(request.command, words("python train.py -np 3 --mpi"));
        assert!(!request.mpi);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, expected) in [
            ("python train.py", "horovodrun needs -np"),
            ("-np 0 a", "-np is \"0\", expected a whole number from 1"),
            ("-np x a", "-np is \"x\", expected a whole number from 1"),
            ("-np 2 -H a:2 -hostfile f a", "cannot be used together"),
            (
                "-np 2 --gloo --mpi a",
                "--gloo and --mpi cannot be used together",
            ),
            (
                "-np 2 -p 0 a",
                "-p is \"0\", expected a port from 1 to 65535",
            ),
            ("-np 2 --network-interfaces eth0, a", "expected interfaces"),
            ("-np 2 --slots 70000 a", "expected a number from 1 to 65535"),
            ("-np 2", "horovodrun was given no program"),
            (
                "-np 2 --autotun=1 a",
                "--autotun could be more than one flag",
            ),
        ] {
            assert!(error(line).contains(expected), "{line}: {}", error(line));
        }
        assert_eq!(
            error("-np 2 --num_proc 2 a"),
            "error: --num_proc is no flag of horovodrun that Carole knows\n\
             hint: the nearest flag is --num-proc\n"
        );
    }

    #[test]
    fn help_and_version_are_told() {
        let help = answer(parse(&words("-np 2 --help")));
        assert!(help.contains("\n  -np, --num-proc N\n"), "{help}");
        assert!(answer(parse(&words("-v"))).starts_with("carole "));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for flag in [
            "--jsrun",
            "--mpi-args=--tag-output",
            "--config-file f",
            "-cb",
            "-prefix-timestamp",
        ] {
            let name = flag.split([' ', '=']).next().unwrap();
            let message = error(&format!("-np 2 {flag} a"));
            assert!(
                message.starts_with(&format!("error: {name}: ")),
                "{message}"
            );
            assert!(message.contains("\nhint: "), "{message}");
        }
    }
}
