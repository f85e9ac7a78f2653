//! The flags of `mpirun`, and what becomes of each.

use carole_launch::request::{Binding, Talk};

use super::super::flag::Flag;
use super::super::flag::Handling::{self, Accepted, AcceptedIf, Help, Honoured, Refused, Version};
use super::super::scan::{Dialect, Launcher};
use super::{Draft, export, mca, output, output_folder, place, set};

/// What is refused because ranks fill the hosts' slots in order, and in no other way.
const PLACES: Handling<Draft> = Refused {
    why: "Carole's ranks fill the hosts' slots in order",
    hint: "leave it out, or give hosts fewer slots, as in -H a:2,b:2",
};

/// What is refused because Carole has no part that it speaks of.
const RUNTIME: Handling<Draft> = Refused {
    why: "it is about Open MPI's own processes, which Carole does without",
    hint: "leave it out",
};

/// What is refused because files are sent in another way.
const SENDING: Handling<Draft> = Refused {
    why: "Carole sends a folder, not files",
    hint: "carole run --sync DIR sends what changed and starts there",
};

pub(super) static MPIRUN: Launcher<Draft> = Launcher {
    name: "mpirun",
    about: "Runs a command line of Open MPI's mpirun, under the MPI that is installed.",
    dialect: Dialect::OpenMpi,
    flags: &[
        Flag::value(
            &["-np", "-n", "-c"],
            "N",
            Honoured(
                "that many ranks, filling the hosts' slots in order",
                |draft, given| {
                    draft.total = Some(given.count()?);
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["-N", "--npernode"],
            "N",
            Honoured(
                "that many ranks on every host. Beside -np only where both say the same",
                |draft, given| {
                    draft.per_host = Some(given.count()?);
                    Ok(())
                },
            ),
        ),
        Flag::switch(
            &["--pernode"],
            Honoured("one rank on every host", |draft, _| {
                draft.per_host = Some(1);
                Ok(())
            }),
        ),
        Flag::value(
            &["-H", "--host"],
            "a:4,b",
            Honoured(
                "the hosts and their slots; one slot where none are given",
                place::hosts,
            ),
        ),
        Flag::value(
            &["--hostfile", "--machinefile"],
            "FILE",
            Honoured("the hosts are in a file", |draft, given| {
                draft.host_file = Some(given.path());
                Ok(())
            }),
        ),
        Flag::value(
            &["--default-hostfile"],
            "FILE",
            Honoured("the same, unless --hostfile is given", |draft, given| {
                draft.default_host_file = Some(given.path());
                Ok(())
            }),
        ),
        Flag::switch(
            &["--oversubscribe"],
            Honoured("more ranks than slots are allowed", |draft, _| {
                draft.request.oversubscribe = true;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--nooversubscribe"],
            Honoured("they are not, as without it", |draft, _| {
                draft.request.oversubscribe = false;
                Ok(())
            }),
        ),
        Flag::value(
            &["--map-by"],
            "HOW",
            Honoured(
                "slot is what Carole does, ppr:N:node is N ranks on every host; :oversubscribe \
                 and :nooversubscribe may follow. Others are refused",
                place::map_by,
            ),
        ),
        Flag::value(
            &["--ppr"],
            "N:node",
            Honoured("that many ranks on every host", place::pattern),
        ),
        Flag::switch(&["--byslot"], Accepted("no effect: it is what Carole does")),
        Flag::value(
            &["--rank-by"],
            "HOW",
            AcceptedIf(
                "no effect: it is what Carole does. Others are refused",
                place::rank_by,
            ),
        ),
        Flag::switch(&["--bynode", "--bycore", "--nolocal"], PLACES),
        Flag::value(
            &[
                "--npersocket",
                "--rankfile",
                "-rf",
                "--cpu-set",
                "--cpu-list",
            ],
            "N",
            PLACES,
        ),
        Flag::value(&["--cpus-per-proc", "--cpus-per-rank"], "N", PLACES),
        Flag::switch(&["--use-hwthread-cpus"], PLACES),
        Flag::value(
            &["--bind-to"],
            "WHAT",
            Honoured(
                "core gives each rank an equal share of the cores, numa one NUMA node, none \
                 all. Others are refused",
                place::bind_to,
            ),
        ),
        Flag::switch(
            &["--bind-to-core"],
            Honoured("as --bind-to core", |draft, _| {
                draft.request.bind = Binding::Core;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--bind-to-none"],
            Honoured("as --bind-to none", |draft, _| {
                draft.request.bind = Binding::None;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--bind-to-socket"],
            Refused {
                why: "Carole binds to core, numa or none",
                hint: "--bind-to numa binds to NUMA nodes, often the same as sockets",
            },
        ),
        Flag::value(
            &["-x"],
            "VAR[=VALUE]",
            Honoured(
                "the ranks get the variable; without a value, the one it has here. VAR* is \
                 refused",
                export,
            ),
        ),
        Flag::value(
            &["--set-env"],
            "VAR=VALUE",
            Honoured("the ranks get the variable", set),
        ),
        Flag::value(
            &["--unset-env", "--prepend-env", "--append-env"],
            "VAR",
            Refused {
                why: "Carole sets variables and passes them on, no more",
                hint: "-x VAR=VALUE sets one; env -u VAR before the program removes one",
            },
        ),
        Flag::pair(
            &["--mca", "--gmca", "--omca", "--gomca"],
            "KEY VALUE",
            Honoured(
                "the variable OMPI_MCA_KEY. Of plm_rsh_args, the flags -p, -i, -l and -o are \
                 Carole's for ssh; plm_rsh_agent can be ssh only: daemons are started over \
                 Carole's connections",
                mca::open_mpi,
            ),
        ),
        Flag::pair(
            &["--prtemca"],
            "KEY VALUE",
            Honoured("the variable PRTE_MCA_KEY", mca::runtime),
        ),
        Flag::pair(
            &["--pmixmca"],
            "KEY VALUE",
            Honoured("the variable PMIX_MCA_KEY", mca::exchange),
        ),
        Flag::value(
            &["--tune", "--am", "--amca"],
            "FILE",
            Refused {
                why: "Carole does not read files of parameters",
                hint: "give them one by one: --mca KEY VALUE",
            },
        ),
        Flag::value(
            &["--wdir", "--wd"],
            "DIR",
            Honoured("the ranks start in this folder", |draft, given| {
                draft.request.folder = Some(given.path());
                Ok(())
            }),
        ),
        Flag::switch(&["--set-cwd-to-session-dir"], SENDING),
        Flag::switch(&["-s", "--preload-binary"], SENDING),
        Flag::value(&["--preload-files"], "FILES", SENDING),
        Flag::value(
            &["--path", "--prefix"],
            "DIRS",
            Refused {
                why: "Carole looks for programs in PATH only",
                hint: "set it for the ranks: -x PATH=… -x LD_LIBRARY_PATH=…",
            },
        ),
        Flag::switch(&["--noprefix"], Accepted("no effect: there is no prefix")),
        Flag::switch(
            &["--tag-output"],
            Honoured(
                "whose line it is stands in front of it; without this, lines are shown as they \
                 are",
                |draft, _| {
                    draft.request.output.prefix = true;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--output-filename"],
            "DIR",
            Honoured(
                "each rank's output goes to files too; with DIR:nocopy to files only",
                output_folder,
            ),
        ),
        Flag::value(
            &["--output"],
            "LIST",
            Honoured(
                "tag, rank, tag-detailed and tag-fullname are --tag-output, dir=DIR is \
                 --output-filename DIR. Others are refused",
                output,
            ),
        ),
        Flag::switch(
            &["--timestamp-output", "--merge-stderr-to-stdout", "--xml"],
            Refused {
                why: "Carole shows lines as they come",
                hint: "--tag-output says whose line it is",
            },
        ),
        Flag::value(
            &["--xml-file", "--xterm", "--stream-buffering"],
            "FILE",
            Refused {
                why: "Carole shows lines as they come",
                hint: "--tag-output says whose line it is",
            },
        ),
        Flag::value(
            &["--stdin"],
            "WHERE",
            AcceptedIf(
                "no effect: ranks do not read Carole's standard input. Others are refused",
                |given| match given.text()? {
                    "none" => Ok(()),
                    _ => Err(given.refused(
                        "Carole's ranks do not read its standard input",
                        "let the program read a file",
                    )),
                },
            ),
        ),
        Flag::switch(
            &["-q", "--quiet"],
            Honoured(
                "Carole itself says nothing but how the job failed, as carole run --quiet",
                |draft, _| {
                    draft.request.output.talk = Talk::Quiet;
                    Ok(())
                },
            ),
        ),
        Flag::switch(
            &["-v", "--verbose"],
            Honoured("Carole says every step it takes", |draft, _| {
                draft.request.output.talk = Talk::Verbose;
                Ok(())
            }),
        ),
        Flag::value(
            &["--timeout"],
            "SECONDS",
            Honoured("the job is stopped after that long", |draft, given| {
                draft.request.deadline = Some(given.seconds()?);
                Ok(())
            }),
        ),
        Flag::value(
            &["--spawn-timeout"],
            "SECONDS",
            Honoured("how long the start may take", |draft, given| {
                draft.request.start_timeout = given.seconds()?;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--get-stack-traces", "--report-state-on-timeout"],
            Accepted("no effect: at a timeout Carole says who was waited for"),
        ),
        Flag::switch(
            &["--allow-run-as-root"],
            Accepted("no effect: Carole does not mind"),
        ),
        Flag::switch(
            &["--report-child-jobs-separately"],
            Accepted("no effect: it is what Carole does"),
        ),
        Flag::switch(
            &["--show-progress"],
            Accepted("no effect: Carole says what it waits for anyway"),
        ),
        Flag::switch(
            &[
                "--display-map",
                "--display-allocation",
                "--display-devel-map",
            ],
            Accepted("no effect: nothing is displayed"),
        ),
        Flag::switch(
            &["--report-bindings", "--display-comm"],
            Accepted("no effect: nothing is displayed"),
        ),
        Flag::value(
            &["--display"],
            "LIST",
            Accepted("no effect: nothing is displayed"),
        ),
        Flag::switch(
            &["--debug-daemons", "--leave-session-attached"],
            Accepted("no effect: they are about Open MPI's own processes"),
        ),
        Flag::switch(
            &["--disable-recovery", "--novm", "--soft"],
            Accepted("no effect: it is what Carole does"),
        ),
        Flag::value(&["--arch"], "NAME", Accepted("no effect, as in Open MPI")),
        Flag::value(
            &["--tmpdir"],
            "DIR",
            Accepted("no effect: they are about Open MPI's own processes"),
        ),
        Flag::value(
            &["--personality"],
            "NAME",
            AcceptedIf(
                "no effect: it is the only one. Others are refused",
                |given| match given.text()? {
                    "ompi" | "ompi4" | "ompi5" => Ok(()),
                    _ => Err(given.wrong("ompi", "ompi")),
                },
            ),
        ),
        Flag::switch(
            &["--enable-recovery", "--continuous"],
            Refused {
                why: "Carole does not let ranks go on alone",
                hint: "carole run --max-restarts N starts all of them again",
            },
        ),
        Flag::value(
            &["--max-restarts", "--with-ft"],
            "N",
            Refused {
                why: "Carole does not start single ranks again",
                hint: "carole run --max-restarts N starts all of them again",
            },
        ),
        Flag::value(
            &["--launch-agent", "--max-vm-size", "--dvm"],
            "NAME",
            RUNTIME,
        ),
        Flag::value(
            &["--report-pid", "--report-uri", "--pset"],
            "WHERE",
            RUNTIME,
        ),
        Flag::value(&["--runtime-options", "--forward-signals"], "LIST", RUNTIME),
        Flag::switch(&["--do-not-launch", "--output-proctable"], RUNTIME),
        Flag::value(
            &["--app"],
            "FILE",
            Refused {
                why: "several programs in one job are not available yet",
                hint: "give one program and its flags",
            },
        ),
        Flag::switch(&["-h", "--help"], Help),
        Flag::switch(&["-V", "--version"], Version),
    ],
};
