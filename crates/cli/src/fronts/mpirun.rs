//! `mpirun`, as Open MPI has it, of its fourth and fifth series.
//!
//! What is started this way is an MPI program as a rule, and only its own MPI can wire it up: without
//! that, each process would be a world of its own and nobody would notice. So the request asks for the
//! installed MPI.
//!
//! Left out: several programs in one job, and what MPICH's and Intel's `mpirun` call their flags.

mod flags;
mod mca;
mod place;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::anyhow;
use carole_launch::request::{DefaultSlots, Hosts, OutputRequest, Request};
use carole_plan::HostSpec;

use self::flags::MPIRUN;
use super::flag::Given;
use super::{Asked, all_streams, set_variable, tee_into};
use crate::failure::Failure;

/// A command line while it is read.
#[derive(Default)]
struct Draft {
    request: Request,
    /// How many ranks in all.
    total: Option<usize>,
    /// How many ranks on every host.
    per_host: Option<usize>,
    /// The hosts after `-H`, those that are given more than once together.
    hosts: Vec<HostSpec>,
    host_file: Option<PathBuf>,
    default_host_file: Option<PathBuf>,
    /// The command line says how hosts are reached.
    says_reach: bool,
}

/// Reads the words after `mpirun`. `variable` is the environment, in which Open MPI looks for
/// parameters that the command line does not have.
pub(crate) fn parse(
    words: &[OsString],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Asked, Failure> {
    let draft = Draft {
        request: Request {
            mpi: true,
            // mpirun shows lines as they are unless it is asked to tag them.
            output: OutputRequest {
                prefix: false,
                collapse: false,
                ..OutputRequest::default()
            },
            ..Request::default()
        },
        ..Draft::default()
    };
    MPIRUN.read(words, draft, |mut draft, command| {
        draft.request.command = command;
        finish(&mut draft)?;
        if draft.request.hosts != Hosts::Here && !draft.says_reach {
            mca::reach(&mut draft, variable)?;
        }
        Ok(draft.request)
    })
}

fn finish(draft: &mut Draft) -> Result<(), Failure> {
    let command = &draft.request.command;
    if command.iter().any(|word| word == ":") {
        return Err(
            Failure::usage(anyhow!("several programs in one job are not available yet"))
                .with_hint("give one program, and no word that is a colon alone"),
        );
    }
    let host_file = draft.host_file.take().or(draft.default_host_file.take());
    draft.request.ranks = place::ranks(draft, host_file.is_some())?;
    draft.request.hosts = match (host_file, &draft.hosts[..]) {
        (None, []) => Hosts::Here,
        (None, hosts) => {
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            Hosts::List(hosts.join(","))
        }
        (Some(file), []) => {
            draft.request.default_slots = DefaultSlots::Cores;
            Hosts::File(file)
        }
        (Some(_), _) => {
            return Err(
                Failure::usage(anyhow!("--host and --hostfile cannot be used together"))
                    .with_hint("give the hosts that shall be used in one of them"),
            );
        }
    };
    Ok(())
}

/// Reads `VAR`, whose value is passed on, or `VAR=value`.
fn export(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let text = given.text()?;
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    if name.is_empty() {
        return Err(given.wrong("VAR or VAR=VALUE", "NCCL_DEBUG=INFO"));
    }
    if name.ends_with('*') {
        return Err(given.refused(
            "Carole passes on variables by their whole names",
            "name each: -x VAR -x VAR",
        ));
    }
    set_variable(&mut draft.request, name, value);
    Ok(())
}

fn set(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    if given.text()?.contains('=') {
        export(draft, given)
    } else {
        Err(given.wrong("VAR=VALUE", "NCCL_DEBUG=INFO"))
    }
}

/// Reads `FOLDER` or `FOLDER:nocopy`; without the latter the terminal shows the lines too.
fn output_folder(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    let value = given.raw();
    let (folder, directives) = match value.to_str().and_then(|text| text.rsplit_once(':')) {
        Some((folder, directives)) => (folder.into(), directives.to_ascii_lowercase()),
        None => (value, String::new()),
    };
    tee_into(&mut draft.request, folder.into());
    let output = &mut draft.request.output;
    for directive in directives.split(',').filter(|it| !it.is_empty()) {
        match directive {
            "copy" | "nojobid" | "jobid" => {}
            "nocopy" => {
                output.tee = carole_launch::request::Streams::default();
                output.redirect = all_streams();
            }
            _ => return Err(given.wrong("FOLDER or FOLDER:nocopy", "logs")),
        }
    }
    Ok(())
}

/// The fifth series' way to say how output is shown: some of `tag`, `rank` and `dir=FOLDER`.
fn output(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    for wish in given.text()?.split(',') {
        match wish.split_once('=') {
            None if matches!(wish, "tag" | "rank" | "tag-detailed" | "tag-fullname") => {
                draft.request.output.prefix = true;
            }
            Some(("dir" | "directory", folder)) => {
                let given = Given {
                    name: given.name.clone(),
                    values: vec![folder.into()],
                };
                output_folder(draft, &given)?;
            }
            _ => {
                return Err(given.refused(
                    "Carole knows tag, rank and dir=FOLDER",
                    "such as --output tag,dir=logs",
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carole_launch::request::{Ranks, Ssh, Streams, Talk};

    use super::super::testing::{self, answer, compare, message, request, words};
    use super::*;

    fn read(line: &str) -> Request {
        request(parse(&words(line), |_| None))
    }

    fn error(line: &str) -> String {
        message(parse(&words(line), |_| None))
    }

    fn variables(line: &str) -> Vec<String> {
        testing::variables(read(line))
    }

    #[test]
    fn the_page_has_every_flag() {
        compare(
            &MPIRUN,
            include_str!("../../../../docs/how-to/coming-from-mpirun.md"),
        );
    }

    #[test]
    fn a_number_and_a_program_run_here() {
        let plain = read("-n 2 mpi-hello-world -n 3");
        let expected = Request {
            ranks: Ranks::Total(2),
            command: words("mpi-hello-world -n 3"),
            mpi: true,
            output: OutputRequest {
                prefix: false,
                collapse: false,
                ..OutputRequest::default()
            },
            ..Request::default()
        };
        assert_eq!(plain, expected);
        for same in ["-np 2", "--np 2", "-c 2", "--n 2", "--np=2"] {
            assert_eq!(
                read(&format!("{same} mpi-hello-world -n 3")),
                expected,
                "{same}"
            );
        }
        // As many ranks as there are cores.
        assert_eq!(read("a.out").ranks, Ranks::PerCore);
    }

    #[test]
    fn open_mpis_own_examples_run() {
        let hosts = |line: &str| {
            let request = read(line);
            (request.hosts, request.ranks)
        };
        let list = |hosts: &str| Hosts::List(hosts.to_owned());
        let file = || Hosts::File("myhostfile".into());
        for (line, expected) in [
            ("-H aa,aa,bb ./a.out", (list("aa:2,bb:1"), Ranks::Slots)),
            ("--hostfile myhostfile ./a.out", (file(), Ranks::Slots)),
            (
                "--hostfile myhostfile -n 6 ./a.out",
                (file(), Ranks::Total(6)),
            ),
            (
                "-H aa,bb --map-by ppr:2:node ./a.out",
                (list("aa:1,bb:1"), Ranks::PerHost(2)),
            ),
            (
                "-H aa,bb --pernode ./a.out",
                (list("aa:1,bb:1"), Ranks::PerHost(1)),
            ),
            (
                "-H aa,bb -n 8 ./a.out",
                (list("aa:1,bb:1"), Ranks::Total(8)),
            ),
        ] {
            assert_eq!(hosts(line), expected, "{line}");
        }
        let file = read("--machinefile myhostfile ./a.out");
        assert_eq!(file.default_slots, DefaultSlots::Cores);
        assert_eq!(
            error("-H aa -n 1 hostname : -H bb,cc -n 2 uptime"),
            "error: several programs in one job are not available yet\n\
             hint: give one program, and no word that is a colon alone\n"
        );
        assert!(error("--hostfile myhostfile --host aa ./a.out").contains("used together"));
        assert_eq!(
            variables("-x DISPLAY -x OFILE=/tmp/out a"),
            ["DISPLAY", "OFILE=/tmp/out"]
        );
    }

    #[test]
    fn help_and_version_are_told() {
        for line in ["-h", "--help", "-np 2 -help"] {
            let help = answer(parse(&words(line), |_| None));
            assert!(help.contains("\n  -np, -n, -c N\n"), "{help}");
            assert!(
                help.contains("\n  --mca, --gmca, --omca, --gomca KEY VALUE\n"),
                "{help}"
            );
        }
        assert!(answer(parse(&words("--version"), |_| None)).starts_with("carole "));
    }

    #[test]
    fn horovods_examples_with_mpirun_run() {
        let mut line = words(
            "-np 16 -H server1:4,server2:4,server3:4,server4:4 -bind-to none -map-by slot \
             -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH \
             -mca pml ob1 -mca btl ^openib -mca plm_rsh_args",
        );
        line.push("-p 12345".into());
        line.extend(words("python train.py"));
        let request = request(parse(&line, |_| None));
        assert_eq!(request.ranks, Ranks::Total(16));
        assert_eq!(
            request.hosts,
            Hosts::List("server1:4,server2:4,server3:4,server4:4".into())
        );
        let ssh = Ssh {
            port: Some(12345),
            ..Ssh::default()
        };
        assert_eq!(request.ssh, ssh);
        assert_eq!(
            variables("-x NCCL_DEBUG=INFO -x PATH -mca pml ob1 --mca btl ^openib a"),
            [
                "NCCL_DEBUG=INFO",
                "PATH",
                "OMPI_MCA_pml=ob1",
                "OMPI_MCA_btl=^openib"
            ]
        );
        assert_eq!(request.command, words("python train.py"));
    }

    #[test]
    fn the_last_value_of_a_variable_counts() {
        assert_eq!(
            variables("-x A=1 -x B -x A=2 --set-env C=3 a"),
            ["B", "A=2", "C=3"]
        );
        assert!(error("-x =1 a").contains("expected VAR or VAR=VALUE"));
        assert!(error("-x NCCL_* a").contains("by their whole names"));
        assert!(error("--set-env C a").contains("expected VAR=VALUE"));
    }

    #[test]
    fn output_is_tagged_and_filed_as_asked() {
        let output = |line: &str| read(line).output;
        assert!(output("--tag-output a").prefix);
        assert!(!output("a").prefix);
        let filed = output("--output-filename logs a");
        assert_eq!(filed.log_folder, Some("logs".into()));
        assert_eq!(
            (filed.tee, filed.redirect),
            (all_streams(), Streams::default())
        );
        let only = output("--output-filename logs:nojobid,nocopy a");
        assert_eq!(
            (only.tee, only.redirect),
            (Streams::default(), all_streams())
        );
        let fifth = output("--output tag,dir=logs a");
        assert!(fifth.prefix);
        assert_eq!(fifth.log_folder, Some("logs".into()));
        assert!(error("--output xml a").contains("--output xml: Carole knows"));
        assert!(error("--output-filename logs:x a").contains("expected FOLDER or FOLDER:nocopy"));
        assert_eq!(output("-q a").talk, Talk::Quiet);
        assert_eq!(output("-q -v a").talk, Talk::Verbose);
    }

    #[test]
    fn folders_and_times_are_kept() {
        let request = read("-wdir /data --timeout 60 --spawn-timeout 5 a");
        assert_eq!(request.folder, Some("/data".into()));
        assert_eq!(request.deadline, Some(Duration::from_secs(60)));
        assert_eq!(request.start_timeout, Duration::from_secs(5));
        assert!(error("--timeout 1m a").contains("expected a whole number of seconds"));
    }

    #[test]
    fn what_carole_does_anyway_is_accepted() {
        let accepted = read(
            "--allow-run-as-root --nooversubscribe --rank-by slot --stdin none \
             --report-bindings --display map --personality ompi -n 2 a",
        );
        assert_eq!(accepted, read("-n 2 a"));
    }

    #[test]
    fn what_would_change_the_run_is_refused_and_a_slip_is_named() {
        for flag in [
            "--bynode",
            "--rankfile f",
            "--prefix /opt",
            "--xml",
            "-s",
            "--app f",
            "--dvm x",
        ] {
            let name = flag.split(' ').next().unwrap();
            let message = error(&format!("{flag} a"));
            assert!(
                message.starts_with(&format!("error: {name}: ")),
                "{message}"
            );
            assert!(message.contains("\nhint: "), "{message}");
        }
        assert!(error("--stdin all a").contains("--stdin all: Carole's ranks do not read"));
        assert_eq!(
            error("--over-subscribe a"),
            "error: --over-subscribe is no flag of mpirun that Carole knows\n\
             hint: the nearest flag is --oversubscribe\n"
        );
        for line in ["-n 0 a", "-n x a", "-N 0 a"] {
            assert!(
                error(line).contains("expected a whole number from 1"),
                "{line}"
            );
        }
        assert!(error("-n 4").contains("mpirun was given no program"));
    }
}
