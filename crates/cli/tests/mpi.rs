//! Programs under their own MPI (`--mpi`), on this host and on hosts that are reached by SSH.

mod fixture;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixture::hosts::{Hosts, files};
use fixture::{Finished, Folder, Running, Watched, eventually};
use rustix::process::Signal;

/// One of each family: their starters differ.
const MPIS: [&str; 2] = ["openmpi", "mpich"];

/// Tells the world's size as seen by each rank, and its host.
const WORLD: &str = "\
import os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total, host = world.allreduce(world.rank), os.uname().nodename
sys.stdout.write(f'rank {world.rank} of {world.size} on {host}: sum {total}\\n')
sys.stdout.flush()
";

/// Leaves a daemon behind, writes both processes' numbers into a folder, and does not end.
const ENDLESS: &str = "\
import os, subprocess, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
daemon = subprocess.Popen(['sleep', '1000'], start_new_session=True)
with open(os.path.join(sys.argv[1], f'rank-{world.rank}'), 'w') as file:
    file.write(f'{os.getpid()} {daemon.pid} {os.getppid()}')
world.barrier()
if world.rank == 0:
    print('ready', flush=True)
time.sleep(1000)
";

/// The environment of an MPI with mpi4py, installed if need be.
fn installed(mpi: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/mpi");
    let done = Command::new(script).arg(mpi).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    PathBuf::from(String::from_utf8(done.stdout).unwrap().trim())
}

/// `command`, with an MPI's folder first in `PATH`.
fn with_mpi(mut command: Command, environment: &Path) -> Command {
    let mut path = OsString::from(environment.join("bin"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    command.env("PATH", path);
    command
}

fn python(environment: &Path) -> String {
    environment.join("bin/python").to_str().unwrap().to_owned()
}

/// A Python program under an MPI, on so many ranks of each host.
fn on_hosts(hosts: &Hosts, environment: &Path, ranks: usize, program: &[&str]) -> Command {
    let python = python(environment);
    let limits = ["--deadline", "60s", "--workdir", "/", "--", &python, "-c"];
    let rest = [&limits[..], program].concat();
    let command = hosts.carole(&["run", "--mpi"], &hosts.list(ranks), &rest);
    with_mpi(command, environment)
}

/// This machine's name.
fn here() -> String {
    let own = rustix::system::uname();
    own.nodename().to_str().unwrap().to_owned()
}

/// The lines of a world of `size`, the ranks' hosts given.
fn world(hosts: &[&str]) -> Vec<String> {
    let size = hosts.len();
    let total = size * (size - 1) / 2;
    let line = |(rank, host)| format!("rank {rank} of {size} on {host}: sum {total}");
    hosts.iter().enumerate().map(line).collect()
}

#[test]
fn ranks_on_one_host_are_one_world() {
    for mpi in MPIS {
        let environment = installed(mpi);
        let folder = Folder::new();
        let words = ["run", "--mpi", "--deadline", "60s", "-n", "3", "--"];
        let mut command = with_mpi(folder.carole(&words), &environment);
        command.args([&python(&environment), "-c", WORLD]);
        let done = Finished::new(command.output().unwrap());
        assert_eq!(done.code, Some(0), "{mpi}: {}", done.stderr);
        assert_eq!(done.sorted_lines(), world(&[here().as_str(); 3]), "{mpi}");
    }
}

#[test]
fn ranks_on_two_hosts_are_one_world_and_nothing_but_the_channel_leads_there() {
    let hosts = Hosts::new(2);
    // Nobody else's way in: an MPI that called ssh itself would find this one.
    let decoy = Folder::new();
    let ssh = which("ssh");
    for mpi in MPIS {
        let environment = installed(mpi);
        let mut command = on_hosts(&hosts, &environment, 2, &[WORLD]);
        let log = decoy.path().join(mpi);
        count_calls(&mut command, &decoy, &ssh, &log);
        let done = Finished::new(command.output().unwrap());
        assert_eq!(done.code, Some(0), "{mpi}: {}", done.stderr);
        let expected = match (hosts.namespace(0), hosts.namespace(1)) {
            (Some(a), Some(b)) => world(&[a, a, b, b]),
            // Addresses of this machine: an MPI needs no shell for them.
            _ => world(&[here().as_str(); 4]),
        };
        assert_eq!(done.sorted_lines(), expected, "{mpi}: {}", done.stderr);
        let calls = std::fs::read_to_string(&log).unwrap();
        assert_eq!(calls.lines().count(), 2, "one connection a host: {calls}");
        assert!(files(&hosts.private()).is_empty(), "no token stays");
    }
}

#[test]
fn what_fails_on_another_host_fails_the_job() {
    let hosts = Hosts::new(2);
    for mpi in MPIS {
        let environment = installed(mpi);
        let failing = format!("{WORLD}if world.rank == 1: world.Abort(7)\nworld.barrier()");
        let mut command = on_hosts(&hosts, &environment, 1, &[&failing]);
        let done = Finished::new(command.output().unwrap());
        assert_eq!(done.code, Some(7), "{mpi}: {}", done.stderr);
        assert!(files(&hosts.private()).is_empty(), "no token stays");
    }
}

#[test]
fn nothing_of_an_mpi_is_left_on_any_host_whatever_ends_the_job() {
    let hosts = Hosts::new(2);
    let causes = ["killed launcher", "interrupt", "lost connection"];
    for (mpi, cause) in MPIS.iter().flat_map(|mpi| causes.map(|cause| (mpi, cause))) {
        let environment = installed(mpi);
        let told = Folder::new();
        let program = [ENDLESS, told.path().to_str().unwrap()];
        let mut running = Running::start(on_hosts(&hosts, &environment, 1, &program));
        running.stdout_until("ready");
        // Each rank, the daemon it left, and the MPI's own daemon above it.
        let processes: Vec<Watched> = (0..2)
            .flat_map(|rank| {
                let file = told.path().join(format!("rank-{rank}"));
                let text = std::fs::read_to_string(file).unwrap();
                text.split(' ').map(Watched::new).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(processes.len(), 6);
        let code = match cause {
            "killed launcher" => {
                running.signal(Signal::KILL);
                None
            }
            "interrupt" => {
                running.signal(Signal::INT);
                Some(130)
            }
            _ => {
                running.child_named("ssh").kill();
                Some(1)
            }
        };
        for process in &processes {
            process.assert_ends();
        }
        let done = running.finish();
        assert_eq!(done.code, code, "{mpi}, {cause}: {}", done.stderr);
        eventually("no token stays", || files(&hosts.private()).is_empty());
    }
}

#[test]
fn the_remote_shell_carries_input_output_and_the_exit_code() {
    use std::os::unix::fs::PermissionsExt;
    let hosts = Hosts::new(1);
    let folder = Folder::new();
    let mpirun = folder.path().join("mpirun");
    // In the place of an MPI's starter, with its remote shell.
    let script = "#!/bin/sh\n\
        if [ \"$1\" = --version ]; then echo HYDRA; exit; fi\n\
        shell=$HYDRA_LAUNCHER_EXEC host=$HOST\n\
        head -c 3000000 /dev/zero | $shell -x -l me $host cat | { sleep 0.2; wc -c; }\n\
        $shell $host 'echo out; echo err >&2; exit 42' < /dev/null; echo code $?\n\
        $shell -n nobody true; echo code $?\n\
        timeout 1 $shell $host 'echo pid $$; exec sleep 1000' < /dev/null\n\
        CAROLE_REMOTE_SHELL=/ $shell $host true; echo code $?\n";
    std::fs::write(&mpirun, script).unwrap();
    std::fs::set_permissions(&mpirun, std::fs::Permissions::from_mode(0o700)).unwrap();
    let rest = ["--deadline", "60s", "--workdir", "/", "--", "true"];
    let mut command = hosts.carole(&["run", "--mpi"], &hosts.list(1), &rest);
    let path = std::env::var_os("PATH").unwrap();
    let path = [folder.path().as_os_str(), &path].join(&OsString::from(":"));
    command.env("PATH", path).env("HOST", hosts.address(0));
    let mut running = Running::start(command);
    running.stdout_until("3000000");
    running.stdout_until("out");
    running.stdout_until("code 42");
    running.stdout_until("code 255");
    // Its shell was ended: nobody waits for this command.
    let pid = running.stdout_until("pid ");
    Watched::new(pid.trim_start_matches("pid ")).assert_ends();
    running.stdout_until("code 255");
    let done = running.finish();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("err\n"), "{}", done.stderr);
    let unknown = "nobody: the job has no host of this name";
    assert!(done.stderr.contains(unknown), "{}", done.stderr);
}

fn which(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.into_iter().find(|path| path.exists()).unwrap()
}

/// Has every call of `ssh` write a line to `log`.
fn count_calls(command: &mut Command, folder: &Folder, ssh: &Path, log: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let counted = folder.path().join("ssh");
    let script = format!(
        "#!/bin/sh\necho call >> '{}'\nexec '{}' \"$@\"\n",
        log.display(),
        ssh.display()
    );
    std::fs::write(&counted, script).unwrap();
    std::fs::set_permissions(&counted, std::fs::Permissions::from_mode(0o700)).unwrap();
    let known = command.get_envs().find(|(name, _)| *name == "PATH");
    let mut path = OsString::from(folder.path());
    path.push(":");
    path.push(known.and_then(|(_, value)| value).unwrap());
    command.env("PATH", path);
}
