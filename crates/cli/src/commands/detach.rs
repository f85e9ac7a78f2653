//! `carole run --detach`: a launcher that outlives its terminal.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use carole_launch::random::random_word;
use carole_launch::registry::Registry;

use crate::failure::Failure;

/// Set for the launcher in the background.
const VARIABLE: &str = "CAROLE_DETACHED";
/// Between two looks at whether the job has started.
const PAUSE: Duration = Duration::from_millis(10);
/// The file with what the launcher shows, in the job's folder.
pub(super) const OUTPUT: &str = "output";

/// Whether this process is the one in the background; it then leaves the terminal.
pub(super) fn is_background() -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    // Fails only if it has left already.
    let _ = rustix::process::setsid();
    true
}

/// Starts this command line again in the background, and waits until its job runs.
pub(super) fn detach(name: Option<String>, limit: Duration) -> Result<ExitCode, Failure> {
    let registry = Registry::of_user().ok_or_else(|| {
        Failure::new(anyhow!(
            "there is no folder to keep a job in the background"
        ))
        .with_hint("set HOME or XDG_STATE_HOME")
    })?;
    let given = name.is_some();
    let name = match name {
        Some(name) => name,
        None => format!("run-{}", random_word().map_err(Failure::new)?),
    };
    let folder = registry.folder_of(&name);
    let mut child = start(&folder, (!given).then_some(&name))
        .context("cannot start the launcher in the background")
        .map_err(Failure::new)?;
    let begin = Instant::now();
    let pid = i32::try_from(child.id()).unwrap_or(0);
    while begin.elapsed() < limit {
        let ended = child.try_wait().ok().flatten();
        let record = registry.read(&name).filter(|record| record.pid == pid);
        if record.is_some_and(|record| record.ranks.iter().any(|rank| rank.pid.is_some())) {
            println!("{name}");
            eprintln!("carole logs -f {name} shows its output, carole stop {name} ends it");
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(status) = ended {
            let said = std::fs::read_to_string(folder.join(OUTPUT)).unwrap_or_default();
            let lines = said.lines().map(|line| format!("  {line}")).collect();
            let code = status.code().unwrap_or(1);
            return Err(Failure::new(anyhow!("the job {name} did not start"))
                .with_details(lines)
                .with_code(code));
        }
        std::thread::sleep(PAUSE);
    }
    Err(Failure::new(anyhow!("the job {name} has not started yet"))
        .with_hint(format!("carole status {name} tells how it is")))
}

fn start(folder: &Path, name: Option<&String>) -> std::io::Result<Child> {
    std::fs::create_dir_all(folder)?;
    let output = File::create(folder.join(OUTPUT))?;
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Only before the program's own words.
    let own = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    if let Some(at) = words[..own].iter().position(|word| word == "--detach") {
        words.remove(at);
    }
    if let Some(name) = name {
        words.splice(1..1, [OsString::from("--name"), name.into()]);
    }
    Command::new("/proc/self/exe")
        .args(words)
        .env(VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
}
