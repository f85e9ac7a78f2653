//! `carole doctor`: whether jobs will run, and what is in their way.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carole_launch::Listed;
use carole_launch::doctor::{self, Finding, Health};
use serde_json::json;

use super::job;
use super::run::{failed_start, wrong_hosts};
use crate::args::{DoctorArguments, OutputChoice};
use crate::failure::Failure;

pub(crate) fn doctor(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let listed = Listed::find(&arguments.place.hosts()).map_err(wrong_hosts)?;
    let reach = job::reach(arguments.place.ssh(), arguments.timeout);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .map_err(Failure::new)?;
    let examining = doctor::examine(&listed.hosts, &arguments.network_interfaces, &reach);
    let found = runtime.block_on(examining).map_err(failed_start)?;
    let text = match arguments.output {
        OutputChoice::Json => lines(found.iter().map(|finding| json!(finding).to_string())),
        OutputChoice::Table => lines(table(&found)),
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to standard output")
        .map_err(Failure::new)?;
    conclude(&found)
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A title and a line for each finding.
fn table(found: &[Finding]) -> Vec<String> {
    let place = |finding: &Finding| match &finding.to {
        Some(to) => format!("{} to {to}", finding.host),
        None => finding.host.clone(),
    };
    let mut rows = vec![["VERDICT", "HOST", "CHECK", "SEEN, AND WHAT TO DO"].map(str::to_owned)];
    rows.extend(found.iter().map(|finding| {
        // Whatever a system says, a finding has one line.
        let seen = finding.seen.replace('\n', "; ");
        let seen = match &finding.hint {
            Some(hint) => format!("{seen} → {hint}"),
            None => seen,
        };
        let verdict = finding.verdict.name().to_owned();
        [verdict, place(finding), finding.check.to_owned(), seen]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [first, second, third] = [0, 1, 2].map(|column| width(column).unwrap_or(0));
    rows.iter()
        .map(|[verdict, host, check, seen]| {
            format!("{verdict:<first$}  {host:<second$}  {check:<third$}  {seen}")
        })
        .collect()
}

/// Anything bad is a failure.
fn conclude(found: &[Finding]) -> Result<ExitCode, Failure> {
    let bad = found.iter().filter(|one| one.verdict == Health::Bad);
    match bad.count() {
        0 => Ok(ExitCode::SUCCESS),
        bad => {
            let are = if bad == 1 { "is" } else { "are" };
            let told = anyhow!("{bad} of {} checks {are} bad", found.len());
            Err(Failure::new(told).with_hint("what is bad says what to do"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(host: &str, to: Option<&str>, verdict: Health, hint: Option<&str>) -> Finding {
        Finding {
            host: host.into(),
            to: to.map(str::to_owned),
            check: "network",
            verdict,
            seen: "what was\nseen".into(),
            hint: hint.map(str::to_owned),
            values: [("round_trip_seconds", 0.5)].into(),
        }
    }

    #[test]
    fn a_finding_is_a_line_and_anything_bad_is_a_failure() {
        let good = finding("a", None, Health::Ok, None);
        let bad = finding("a", Some("b"), Health::Bad, Some("open it"));
        let expected = [
            "VERDICT  HOST    CHECK    SEEN, AND WHAT TO DO",
            "ok       a       network  what was; seen",
            "bad      a to b  network  what was; seen → open it",
        ];
        assert_eq!(table(&[good.clone(), bad.clone()]), expected);
        assert!(conclude(std::slice::from_ref(&good)).is_ok());
        assert_eq!(conclude(&[good, bad]).unwrap_err().code(), 1);
    }

    #[test]
    fn an_object_has_what_the_line_has() {
        let bad = finding("a", Some("b"), Health::Bad, Some("open it"));
        let expected = json!({
            "host": "a",
            "to": "b",
            "check": "network",
            "verdict": "bad",
            "seen": "what was\nseen",
            "hint": "open it",
            "values": {"round_trip_seconds": 0.5},
        });
        assert_eq!(json!(bad), expected);
    }
}
