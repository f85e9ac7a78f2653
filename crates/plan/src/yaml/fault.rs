//! What is wrong with a document, where, and on which line.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use super::path::{Path, Step};
use super::tree::{Entry, Node};
use crate::error::{FieldProblem, PlanError, excerpt};
use crate::nearest::nearest;

/// An error on its way up from the value it is about.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) path: Path,
    pub(crate) problem: FieldProblem,
    pub(crate) line: Option<usize>,
}

impl Fault {
    pub(crate) fn new(path: Path, problem: FieldProblem) -> Self {
        Self {
            path,
            problem,
            line: None,
        }
    }

    /// A fault of the value at `path`.
    pub(crate) fn value(path: Path, found: impl fmt::Display, expected: impl Into<String>) -> Self {
        let problem = FieldProblem::Value {
            found: found.to_string(),
            expected: expected.into(),
        };
        Self::new(path, problem)
    }

    /// A fault in words of its own.
    pub(crate) fn other(path: Path, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::new(path, FieldProblem::Other { problem })
    }

    pub(crate) fn on_line(mut self, line: usize) -> Self {
        self.line.get_or_insert(line);
        self
    }

    /// The fault is the value's: fills in what only the node knows, unless it came from below.
    pub(crate) fn at(mut self, node: &Node) -> Self {
        if let FieldProblem::Value { found, expected } = &mut self.problem
            && found.is_empty()
        {
            *found = node.describe();
            if expected == TEXT
                && let Some(number) = node.number_or_bool()
            {
                *expected = format!("{TEXT}: write {number:?}");
            }
        }
        self.on_line(node.line)
    }

    /// The fault is the key's.
    pub(crate) fn of_key(mut self, entry: &Entry) -> Self {
        if let FieldProblem::Value { found, .. } = &mut self.problem
            && found.is_empty()
        {
            *found = format!("{:?}", excerpt(&entry.key));
        }
        self.on_line(entry.line)
    }

    /// The fault came from below `step`.
    pub(crate) fn under(mut self, step: Step) -> Self {
        self.path.lead(step);
        self
    }
}

impl From<Fault> for PlanError {
    fn from(fault: Fault) -> Self {
        PlanError::JobField {
            path: fault.path.to_string(),
            problem: fault.problem,
            line: fault.line,
        }
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.problem)
    }
}

/// What serde tells is kept as facts; the found value is filled in by [`Fault::at`].
impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::other(Path::default(), message.to_string())
    }

    fn invalid_type(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::value(Path::default(), "", in_words(&expected.to_string()))
    }

    fn invalid_value(_found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::value(Path::default(), "", in_words(&expected.to_string()))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        let problem = FieldProblem::UnknownValue {
            found: excerpt(variant),
            nearest: nearest(variant, known.iter().copied()),
            known,
        };
        Self::new(Path::default(), problem)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::new(Path::default(), unknown("a field", field, known))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(Path::default().key(field), FieldProblem::Missing)
    }
}

/// `name` is not one of `known`.
pub(crate) fn unknown(
    what: impl Into<String>,
    name: &str,
    known: &'static [&'static str],
) -> FieldProblem {
    FieldProblem::UnknownName {
        what: what.into(),
        nearest: nearest(name, known.iter().copied()),
        known,
    }
}

/// What a text is called in errors.
const TEXT: &str = "text";

/// What serde expects, as a person would say it.
fn in_words(expected: &str) -> String {
    match expected {
        "a string" | "a borrowed string" => TEXT.to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "a mapping".to_owned(),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "a nonzero u16" => format!("a whole number from 1 to {}", u16::MAX),
        other => other.to_owned(),
    }
}
