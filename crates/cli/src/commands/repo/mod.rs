//! `carole repo`: the git repositories of all hosts at one branch.
//!
//! What happens on a host is a script of its own, `repository.sh`; it needs git there and nothing
//! else. What the hosts say is put together and judged here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carole_launch::remote::{Ending, Outcome};
use serde::Serialize;

use super::everywhere::Everywhere;
use crate::args::{OutputChoice, RepoAction, RepoArguments, RepoWork};
use crate::failure::Failure;

/// What runs on every host.
const SCRIPT: &str = include_str!("repository.sh");
/// Lines of a host's own words that are told.
const TOLD_LINES: usize = 3;

pub(crate) fn repo(arguments: &RepoArguments) -> Result<ExitCode, Failure> {
    let (action, work) = match &arguments.action {
        RepoAction::Checkout(work) => ("checkout", work),
        RepoAction::Update(work) => ("update", work),
    };
    let everywhere = Everywhere::new(&work.place, work.timeout)?;
    let words = words(action, work)?;
    let outcomes = everywhere.run(&words, |_, _| Ok(()))?;
    let states: Vec<State<'_>> = outcomes
        .iter()
        .map(|outcome| State {
            host: &everywhere.hosts[outcome.index].name,
            found: Found::new(outcome),
        })
        .collect();
    print(work.output, &states, &mut io::stdout())
        .context("cannot write to standard output")
        .map_err(Failure::new)?;
    judge(action, work.branch.as_str(), &states)
}

/// The command for the hosts.
fn words(action: &str, work: &RepoWork) -> Result<Vec<OsString>, Failure> {
    let folder = match &work.path {
        // Each host knows its own home folder.
        Some(path) if path.starts_with("~") => Ok(path.clone()),
        Some(path) => std::path::absolute(path),
        None => std::env::current_dir(),
    };
    let folder = folder
        .context("cannot tell which folder this is")
        .map_err(Failure::usage)?;
    let plain = ["sh", "-c", SCRIPT, "carole-repo", action].map(OsString::from);
    let last = [folder.into_os_string(), work.branch.as_str().into()];
    Ok(plain.into_iter().chain(last).collect())
}

/// What a host says of its repository.
#[derive(Debug, Serialize)]
struct State<'a> {
    host: &'a str,
    #[serde(flatten)]
    found: Found,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Found {
    Commit {
        commit: String,
        short: String,
        subject: String,
    },
    Problem {
        error: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
}

impl Found {
    fn new(outcome: &Outcome) -> Self {
        let problem = |error: String, hint| Self::Problem { error, hint };
        match &outcome.ending {
            Ending::Exited(exit) if exit.success() => {
                let text = outcome.stdout.text();
                match text.lines().collect::<Vec<_>>()[..] {
                    [commit, short, ref rest @ ..] if rest.len() < 2 => Self::Commit {
                        commit: commit.to_owned(),
                        short: short.to_owned(),
                        subject: rest.concat(),
                    },
                    _ => problem(format!("it said {text:?}"), None),
                }
            }
            Ending::Exited(exit) => {
                let said = outcome.stderr.last_lines(TOLD_LINES);
                problem(
                    if said.is_empty() {
                        exit.to_string()
                    } else {
                        said
                    },
                    None,
                )
            }
            Ending::Failed {
                problem: why, hint, ..
            } => problem(why.clone(), hint.clone()),
        }
    }
}

fn print(output: OutputChoice, states: &[State<'_>], out: &mut impl Write) -> io::Result<()> {
    if output == OutputChoice::Json {
        for state in states {
            writeln!(out, "{}", serde_json::to_string(state)?)?;
        }
        return out.flush();
    }
    let row = |state: &State<'_>| match &state.found {
        Found::Commit { short, subject, .. } => {
            (state.host.to_owned(), short.clone(), subject.clone())
        }
        Found::Problem { .. } => (state.host.to_owned(), "-".into(), "failed".into()),
    };
    let title = ("host".to_owned(), "commit".to_owned(), "subject".to_owned());
    let rows: Vec<_> = std::iter::once(title)
        .chain(states.iter().map(row))
        .collect();
    let width = |of: fn(&(String, String, String)) -> &String| {
        rows.iter()
            .map(|row| of(row).chars().count())
            .max()
            .unwrap_or(0)
    };
    let (hosts, commits) = (width(|row| &row.0), width(|row| &row.1));
    for (host, commit, subject) in &rows {
        writeln!(out, "{host:hosts$}  {commit:commits$}  {subject}")?;
    }
    out.flush()
}

/// Whether all hosts are at the same commit.
fn judge(action: &str, branch: &str, states: &[State<'_>]) -> Result<ExitCode, Failure> {
    let mut problems = Vec::new();
    let mut failed = 0;
    let mut commits = BTreeSet::new();
    for State { host, found } in states {
        match found {
            Found::Commit { commit, .. } => {
                commits.insert(commit);
            }
            Found::Problem { error, hint } => {
                failed += 1;
                problems.push(format!("  {host}: {error}"));
                problems.extend(hint.iter().map(|hint| format!("    hint: {hint}")));
            }
        }
    }
    if failed > 0 {
        let of = states.len();
        let hosts = if of == 1 { "host" } else { "hosts" };
        let error = anyhow!("the {action} of {branch} failed on {failed} of {of} {hosts}");
        return Err(Failure::new(error).with_details(problems));
    }
    if commits.len() > 1 {
        let error = anyhow!(
            "the hosts are at {} different commits of {branch}",
            commits.len()
        );
        let failure = Failure::new(error);
        return Err(match action {
            "checkout" => failure.with_hint(format!(
                "carole repo update {branch} brings them forward to the remote's"
            )),
            _ => failure.with_hint(
                "some hosts have commits that the remote has not, or the remote changed meanwhile",
            ),
        });
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carole_launch::Exit;
    use carole_launch::remote::Kept;

    use super::*;

    fn outcome(code: i32, stdout: &str, stderr: &str) -> Outcome {
        Outcome {
            index: 0,
            ending: Ending::Exited(Exit::Code(code)),
            elapsed: Duration::ZERO,
            stdout: Kept::from(stdout.as_bytes()),
            stderr: Kept::from(stderr.as_bytes()),
        }
    }

    fn at(host: &'static str, commit: &str) -> State<'static> {
        let text = format!("{commit}{commit}\n{commit}\nadd x\n");
        State {
            host,
            found: Found::new(&outcome(0, &text, "")),
        }
    }

    #[test]
    fn commits_are_listed_and_must_be_the_same() {
        let same = [at("a", "12ab"), at("node-b", "12ab")];
        assert!(judge("update", "main", &same).is_ok());
        let mut text = Vec::new();
        print(OutputChoice::Table, &same, &mut text).unwrap();
        let expected = "host    commit  subject\na       12ab    add x\nnode-b  12ab    add x\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let other = [at("a", "12ab"), at("b", "34cd")];
        let told = judge("checkout", "main", &other).unwrap_err().render(false);
        let expected =
            "error: the hosts are at 2 different commits of main\nhint: carole repo update";
        assert!(told.starts_with(expected), "{told}");
    }

    #[test]
    fn a_host_s_problem_is_told_in_its_words() {
        let state = State {
            host: "b",
            found: Found::new(&outcome(1, "", "main has diverged\n")),
        };
        let mut text = Vec::new();
        print(OutputChoice::Json, std::slice::from_ref(&state), &mut text).unwrap();
        let expected = "{\"host\":\"b\",\"error\":\"main has diverged\"}\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let failure = judge("update", "main", &[at("a", "12ab"), state]).unwrap_err();
        assert_eq!(failure.code(), 1);
        let expected = "error: the update of main failed on 1 of 2 hosts\n  b: main has diverged\n";
        assert_eq!(failure.render(false), expected);
    }

    #[test]
    fn a_commit_may_have_no_subject() {
        let found = Found::new(&outcome(0, "1234\n12\n\n", ""));
        let expected = Found::Commit {
            commit: "1234".into(),
            short: "12".into(),
            subject: String::new(),
        };
        assert_eq!(found, expected);
        let odd = Found::new(&outcome(0, "what?\n", ""));
        assert!(matches!(odd, Found::Problem { .. }), "{odd:?}");
    }
}
