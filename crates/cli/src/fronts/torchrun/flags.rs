//! The flags of `torchrun`, and what becomes of each.

use super::super::flag::Flag;
use super::super::flag::Handling::{Accepted, AcceptedIf, Help, Honoured, Refused};
use super::super::scan::{Dialect, Launcher};
use super::super::set_variable;
use super::{
    Draft, backend, local_ranks, nodes, numa, ranks, rendezvous_settings, signals, streams,
};

pub(super) static TORCHRUN: Launcher<Draft> = Launcher {
    name: "torchrun",
    about: "Runs a torchrun command line, on this machine.",
    dialect: Dialect::Argparse { underscores: true },
    flags: &[
        Flag::value(
            &["--nnodes"],
            "N",
            Honoured(
                "1, or 1:1, is this machine. Others are refused: carole run -H a:4,b:4 starts several",
                nodes,
            ),
        ),
        Flag::value(
            &["--nproc-per-node"],
            "N",
            Honoured(
                "that many ranks; auto, gpu and cpu count devices and cores. xpu is refused",
                ranks,
            ),
        ),
        Flag::value(
            &["--node-rank"],
            "N",
            Honoured("0 is this machine; there is no other", |draft, given| {
                draft.node_rank = given.whole()?;
                Ok(())
            }),
        ),
        Flag::value(
            &["--rdzv-backend"],
            "NAME",
            Honoured(
                "static, c10d, etcd and etcd-v2 are understood; whichever it is, ranks meet at \
                 Carole's coordinator. Others are refused",
                backend,
            ),
        ),
        Flag::value(
            &["--rdzv-endpoint"],
            "HOST:PORT",
            Honoured(
                "becomes MASTER_ADDR and MASTER_PORT if the backend is static, as without \
                 --rdzv-backend; otherwise nothing has to be there",
                |draft, given| {
                    draft.endpoint = Some(given.text()?.to_owned());
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--rdzv-id"],
            "ID",
            Honoured(
                "the job's name, and so TORCHELASTIC_RUN_ID. An id that cannot be a name (1 to \
                 63 lower-case letters, digits and dashes) is TORCHELASTIC_RUN_ID only",
                |draft, given| {
                    draft.id = Some(given.text()?.to_owned());
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--rdzv-conf"],
            "KEY=VALUE,…",
            Honoured(
                "timeout and join_timeout say how long the start may take, in seconds. Others \
                 say nothing to Carole",
                rendezvous_settings,
            ),
        ),
        Flag::switch(
            &["--standalone"],
            Honoured(
                "what Carole does anyway; as in torchrun, --rdzv-… and --master-… do not count \
                 then",
                |draft, _| {
                    draft.standalone = true;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--max-restarts"],
            "N",
            Honoured(
                "all ranks are started again after a failure, N times at most",
                |draft, given| {
                    draft.request.max_restarts = given.whole()?;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--monitor-interval"],
            "SECONDS",
            AcceptedIf("no effect: Carole learns of an exit at once", |given| {
                given.number::<f64>("a number of seconds", "0.1").map(drop)
            }),
        ),
        Flag::value(
            &["--start-method"],
            "NAME",
            AcceptedIf(
                "no effect: it is about functions, and ranks are programs",
                |given| match given.text()? {
                    "spawn" | "fork" | "forkserver" => Ok(()),
                    _ => Err(given.wrong("spawn, fork or forkserver", "spawn")),
                },
            ),
        ),
        Flag::value(
            &["--event-log-handler"],
            "NAME",
            Accepted("no effect: Carole logs its own events"),
        ),
        Flag::value(
            &["--role"],
            "NAME",
            Honoured("becomes ROLE_NAME", |draft, given| {
                let role = given.text()?.to_owned();
                set_variable(&mut draft.request, "ROLE_NAME", Some(role));
                Ok(())
            }),
        ),
        Flag::switch(
            &["-m", "--module"],
            Honoured("python -u -m MODULE", |draft, _| {
                draft.module = true;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--no-python"],
            Honoured("the program itself, without Python", |draft, _| {
                draft.no_python = true;
                Ok(())
            }),
        ),
        Flag::switch(
            &["--run-path"],
            Honoured(
                "python -u SCRIPT: a rank is a process of its own either way",
                |draft, _| {
                    draft.run_path = true;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--log-dir"],
            "DIR",
            Honoured(
                "each rank's standard output and standard error in files of their own",
                |draft, given| {
                    draft.request.output.log_folder = Some(given.path());
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["-r", "--redirects"],
            "SPEC",
            Honoured(
                "these streams go to files only: 3, or 0:1,1:2",
                |draft, given| {
                    draft.request.output.redirect = streams(given)?;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["-t", "--tee"],
            "SPEC",
            Honoured(
                "these streams go to files and to the terminal",
                |draft, given| {
                    draft.request.output.tee = streams(given)?;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--local-ranks-filter"],
            "RANKS",
            Honoured("the terminal shows these local ranks only", local_ranks),
        ),
        Flag::value(
            &["--master-addr"],
            "ADDRESS",
            Honoured(
                "becomes MASTER_ADDR if the backend is static",
                |draft, given| {
                    draft.master_address = Some(given.text()?.to_owned());
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--master-port"],
            "PORT",
            Honoured(
                "becomes MASTER_PORT if the backend is static; 0 is any free one",
                |draft, given| {
                    // 0 is torchrun's way to ask for a free one, which Carole takes anyway.
                    draft.master_port = Some(given.whole()?).filter(|port| *port != 0);
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--local-addr"],
            "ADDRESS",
            Honoured(
                "becomes MASTER_ADDR if the backend is not static",
                |draft, given| {
                    draft.local_address = Some(given.text()?.to_owned());
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--numa-binding"],
            "HOW",
            Honoured(
                "each rank is bound to one NUMA node. Other values are refused",
                numa,
            ),
        ),
        Flag::value(
            &["--signals-to-handle"],
            "SIGNALS",
            AcceptedIf(
                "no effect: SIGTERM, SIGINT, SIGHUP and SIGQUIT end a job. Others are refused",
                signals,
            ),
        ),
        Flag::value(
            &["--shutdown-timeout"],
            "SECONDS",
            Honoured(
                "how long ranks that were asked to end may take",
                |draft, given| {
                    draft.request.grace = given.seconds()?;
                    Ok(())
                },
            ),
        ),
        Flag::value(
            &["--duplicate-stdout-filters", "--duplicate-stderr-filters"],
            "TEXTS",
            Refused {
                why: "Carole does not pick lines",
                hint: "--log-dir keeps all of them",
            },
        ),
        Flag::value(
            &["--logs-specs"],
            "NAME",
            Refused {
                why: "Carole has one way to write logs",
                hint: "--log-dir, --redirects and --tee say where they go",
            },
        ),
        Flag::switch(
            &["--virtual-local-rank"],
            Refused {
                why: "Carole gives each rank its own LOCAL_RANK",
                hint: "carole run --isolate-gpus shows each rank its own GPU only",
            },
        ),
        Flag::switch(&["-h", "--help"], Help),
    ],
};
