//! What the fronts' tests share.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;

use super::flag::Handling;
use super::scan::Launcher;
use crate::failure::Failure;

/// The words of a command line in which nothing is quoted.
pub(super) fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

/// What a person is told of a wrong command line.
pub(super) fn message<T: Debug>(result: Result<T, Failure>) -> String {
    let failure = result.unwrap_err();
    assert_eq!(failure.code(), 2, "a wrong command line exits with 2");
    failure.render(false)
}

/// Compares a launcher's flags with the rows of its page, both ways: each name is in the first
/// cell of one row, and the second says whether the flag has no effect or is refused.
pub(super) fn compare<D>(launcher: &Launcher<D>, page: &str) {
    let mut rows = rows(page);
    for flag in launcher.flags {
        for name in flag.names {
            let text = rows.remove(*name);
            let text = text.unwrap_or_else(|| panic!("{name} is not in the page, or twice here"));
            let no_effect = text.starts_with("no effect");
            let refused = text.starts_with("refused");
            let expected = match flag.handling {
                Handling::Honoured(_) => (false, false),
                Handling::Accepted | Handling::AcceptedIf(_) => (true, false),
                Handling::Refused { .. } => (false, true),
            };
            assert_eq!((no_effect, refused), expected, "{name}: {text}");
        }
    }
    assert!(
        rows.is_empty(),
        "the page has flags that the code has not: {rows:?}"
    );
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
