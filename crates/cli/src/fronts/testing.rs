//! What the fronts' tests share.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;

use carole_launch::request::Request;

use super::Asked;
use super::flag::{Flag, Handling};
use super::help;
use super::scan::Launcher;
use crate::failure::Failure;

/// The words of a command line in which nothing is quoted.
pub(super) fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// The request that a command line asks for.
pub(super) fn request(asked: Result<Asked, Failure>) -> Request {
    match asked {
        Ok(Asked::Job(request)) => *request,
        Ok(Asked::Answer(answer)) => panic!("an answer and no job: {answer}"),
        Err(failure) => panic!("{}", failure.render(false)),
    }
}

/// What somebody who asked is told.
pub(super) fn answer(asked: Result<Asked, Failure>) -> String {
    match asked {
        Ok(Asked::Answer(answer)) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

/// The variables of a request, as `NAME=VALUE`, or `NAME` where the launcher's own is passed on.
pub(super) fn variables(request: Request) -> Vec<String> {
    let shown = |(name, value): (String, Option<String>)| match value {
        Some(value) => format!("{name}={value}"),
        None => name,
    };
    request.variables.into_iter().map(shown).collect()
}

/// What a person is told of a wrong command line.
pub(super) fn message<T: Debug>(result: Result<T, Failure>) -> String {
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), 2, "a wrong command line exits with 2");
    failure.render(false)
}

/// Compares a launcher's flags with the rows of its page, both ways: each name is in the first
/// cell of one row, and the second says what help says, or that the flag is refused. Help has them
/// all.
pub(super) fn compare<D>(launcher: &Launcher<D>, page: &str) {
    let mut rows = rows(page);
    let help = help::page(launcher);
    for flag in launcher.flags {
        for name in flag.names {
            let text = rows.remove(*name);
            let text = text.unwrap_or_else(|| panic!("{name} is not in the page, or twice here"));
            compare_row(flag, name, &plain(text));
            assert!(help.contains(name), "{name} is not in the help");
        }
    }
    assert!(
        rows.is_empty(),
        "the page has flags that the code has not: {rows:?}"
    );
}

fn compare_row<D>(flag: &Flag<D>, name: &str, text: &str) {
    let no_effect = text.starts_with("no effect");
    let refused = text.starts_with("refused: ");
    let expected = match flag.handling {
        Handling::Refused { .. } => (false, true),
        Handling::Accepted(_) | Handling::AcceptedIf(..) => (true, false),
        Handling::Honoured(..) | Handling::Sets(..) | Handling::Help | Handling::Version => {
            (false, false)
        }
    };
    assert_eq!((no_effect, refused), expected, "{name}: {text}");
    if !refused {
        assert_eq!(text, flag.told(), "{name}: the page and the code differ");
    }
}

/// A cell as a terminal shows it: code as it is, and links without their targets.
fn plain(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell;
    while let Some((before, link)) = rest.split_once('[') {
        let (name, target) = link.split_once("](").expect("a link has a target");
        text += before;
        text += name;
        rest = target.split_once(')').expect("a link's target ends").1;
    }
    text += rest;
    text.replace('`', "")
}

/// What the tables of a page say of each flag.
fn rows(page: &str) -> BTreeMap<&str, &str> {
    let cells = page.lines().filter_map(|line| {
        let (flags, text) = line.strip_prefix("| `")?.split_once(" | ")?;
        Some((flags, text.trim_end_matches([' ', '|'])))
    });
    let mut rows = BTreeMap::new();
    for (flags, text) in cells {
        // The first backtick was taken with the cell's border, so every other part is code.
        for name in flags.split('`').step_by(2) {
            let name = name.split([' ', '=']).next().unwrap_or_default();
            if name.starts_with('-') {
                let before = rows.insert(name, text);
                assert_eq!(before, None, "{name} is in the page twice");
            }
        }
    }
    rows
}
