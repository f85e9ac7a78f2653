//! What can be wrong with a plan: the one error type of this crate.
//!
//! Every variant carries the facts as fields, so that a caller can act on them, and prints a whole
//! sentence, so that a person needs no other line to find the mistake. Text from outside is shown
//! quoted and shortened: a log line cannot be forged or flooded through an error.

use std::fmt;

use thiserror::Error;

use crate::job::Backend;

/// What is wrong with a host list, a host file, a peer id, a graph, a topology or a job file.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// An algorithm table makes no sense.
    #[error("bad algorithm table: {problem}")]
    Table {
        /// Which field, and what it should be.
        problem: String,
    },
    /// A range of ports is not what it should be.
    #[error("{found:?} is no range of ports, expected two, the lower first, such as 10000-10100")]
    PortRange {
        /// What was found, shortened.
        found: String,
    },
    /// A part of a host's description is not what it should be.
    #[error("{origin}: {part} is {found:?}, expected {expected}")]
    HostPart {
        /// Where it was written.
        origin: Origin,
        /// Which part: the host, the number of slots, …
        part: &'static str,
        /// What was found, shortened.
        found: String,
        /// What would have been right.
        expected: &'static str,
    },

    /// A part of a host's description is there twice.
    #[error("{origin}: {part} is given twice")]
    HostPartTwice {
        /// Where it was written.
        origin: Origin,
        /// Which part.
        part: &'static str,
    },

    /// A host file says that a host may hold fewer ranks than it has slots.
    #[error("{origin}: max_slots={max_slots} is below slots={slots}")]
    MaxSlotsBelowSlots {
        /// Where it was written.
        origin: Origin,
        /// The host's slots.
        slots: u16,
        /// The bound that contradicts them.
        max_slots: u16,
    },

    /// A host is listed twice.
    #[error("{origin}: host {host} was given already by {first}")]
    DuplicateHost {
        /// Where it was written the second time.
        origin: Origin,
        /// The host.
        host: String,
        /// Where it was written first.
        first: Origin,
    },

    /// A host list or a host file has no host in it.
    #[error("the {input} names no host")]
    NoHosts {
        /// Which kind of input it was.
        input: &'static str,
    },

    /// More ranks are wanted than the hosts have slots.
    #[error("{ranks} ranks do not fit: the hosts have {slots} slots in all")]
    NotEnoughSlots {
        /// Ranks wanted.
        ranks: usize,
        /// Slots of all hosts together.
        slots: usize,
    },

    /// A text is not a peer id.
    #[error("peer id {found:?}: expected {expected}")]
    PeerId {
        /// What was found, shortened.
        found: String,
        /// What would have been right.
        expected: &'static str,
    },

    /// Two ranks of one membership hold the same slot of the same host.
    #[error("ranks {first} and {second} are both {peer}")]
    DuplicatePeer {
        /// The host and slot they share.
        peer: String,
        /// The lower rank.
        first: usize,
        /// The higher rank.
        second: usize,
    },

    /// No topology has this name.
    #[error("unknown topology {found:?}, expected one of {expected}")]
    UnknownTopology {
        /// What was found, shortened.
        found: String,
        /// The known names.
        expected: String,
    },

    /// A graph without vertices, or a topology over no ranks.
    #[error("a topology needs at least one rank")]
    NoRanks,

    /// A topology without graphs.
    #[error("a topology needs at least one pair of graphs")]
    NoPairs,

    /// A vertex that the graph does not have.
    #[error("vertex {vertex} is not one of the {vertices} vertices of the graph")]
    VertexOutOfRange {
        /// The vertex that was named.
        vertex: usize,
        /// How many vertices there are.
        vertices: usize,
    },

    /// A vertex of a reduce graph leaves its own value out.
    #[error("reduce graph: vertex {vertex} has no self loop, so its own value is left out")]
    MissingSelfLoop {
        /// The vertex.
        vertex: usize,
    },

    /// A vertex of a broadcast graph would add what it should only take.
    #[error("broadcast graph: vertex {vertex} has a self loop, so it would add and not take")]
    UnexpectedSelfLoop {
        /// The vertex.
        vertex: usize,
    },

    /// A vertex has more than one parent.
    #[error("{graph}: vertex {vertex} has {parents} parents, expected at most one")]
    SeveralParents {
        /// Which graph of the pair.
        graph: GraphKind,
        /// The vertex.
        vertex: usize,
        /// How many parents it has.
        parents: usize,
    },

    /// A graph that should be one tree has no root, or several.
    #[error("{graph}: the roots are {roots:?}, expected exactly one")]
    NotOneRoot {
        /// Which graph of the pair.
        graph: GraphKind,
        /// The vertices without a parent.
        roots: Vec<usize>,
    },

    /// A vertex that no root reaches: it is on a cycle, or hangs from one.
    #[error("{graph}: vertex {vertex} is on a cycle or hangs from one")]
    Cycle {
        /// Which graph of the pair.
        graph: GraphKind,
        /// The lowest such vertex.
        vertex: usize,
    },

    /// The sum would end on one rank and the broadcast start on another.
    #[error("the reduce graph ends at vertex {reduce}, the broadcast graph starts at {broadcast}")]
    RootsDiffer {
        /// Where the reduce graph ends.
        reduce: usize,
        /// Where the broadcast graph starts.
        broadcast: usize,
    },

    /// Two things that must be of one size are not.
    #[error("the size of {what} is {found}, expected {expected}")]
    SizeMismatch {
        /// What has the wrong size.
        what: &'static str,
        /// Its size.
        found: usize,
        /// The size it should have.
        expected: usize,
    },

    /// A row of a latency matrix is too short or too long.
    #[error("latency matrix: the length of row {row} is {found}, expected {expected}")]
    LatencyRow {
        /// The row.
        row: usize,
        /// Its length.
        found: usize,
        /// The length of a square matrix's row.
        expected: usize,
    },

    /// A job file is wrong in one place.
    #[error("{} {problem}{}", place(path), on_line(*line))]
    JobField {
        /// The field, such as `spec.roles.worker.replicas`; empty for the file as a whole.
        path: String,
        /// What is wrong with it.
        problem: FieldProblem,
        /// Where it is in the file, counted from 1, if it came from a file.
        line: Option<usize>,
    },

    /// A text is not the name, the quantity or the span of time that it should be.
    #[error("found {found:?}, expected {expected}")]
    JobPart {
        /// What was found, shortened.
        found: String,
        /// What would have been right.
        expected: &'static str,
    },

    /// A job asks for what a backend does not do in this version.
    #[error("the {backend} backend does not honour {}", fields.join(", "))]
    JobUnsupported {
        /// The backend.
        backend: Backend,
        /// The fields, each with the use that is not honoured where another one is.
        fields: Vec<String>,
    },

    /// A latency that no link can have.
    #[error("latency matrix: row {row}, column {column} is {found}, expected a finite number >= 0")]
    Latency {
        /// The row.
        row: usize,
        /// The column.
        column: usize,
        /// What was found.
        found: f64,
    },
}

/// Where a host was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a host spec of its own.
    Spec,
    /// In this part of a comma-separated list, counted from 1.
    ListPart(usize),
    /// On this line of a host file, counted from 1.
    Line(usize),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spec => write!(f, "host spec"),
            Self::ListPart(part) => write!(f, "part {part} of the host list"),
            Self::Line(line) => write!(f, "line {line} of the host file"),
        }
    }
}

/// Which graph of a pair an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphKind {
    /// The graph along which values are combined towards the root.
    Reduce,
    /// The graph along which the result travels from the root.
    Broadcast,
}

impl fmt::Display for GraphKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reduce => write!(f, "reduce graph"),
            Self::Broadcast => write!(f, "broadcast graph"),
        }
    }
}

/// What is wrong with a field of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldProblem {
    /// There is no such field, or no such role.
    UnknownName {
        /// What it is not: `a field`, `a role of AllReduce`.
        what: String,
        /// The known name that was most likely meant.
        nearest: Option<&'static str>,
        /// The known names.
        known: &'static [&'static str],
    },
    /// The value is none of the names that it may be.
    UnknownValue {
        /// What was found, shortened.
        found: String,
        /// The known name that was most likely meant.
        nearest: Option<&'static str>,
        /// The known names.
        known: &'static [&'static str],
    },
    /// The field must be there and is not.
    Missing,
    /// The field is there twice.
    Twice {
        /// The line on which it was given first.
        first: usize,
    },
    /// The value is not what it should be.
    Value {
        /// What was found, shortened.
        found: String,
        /// What would have been right.
        expected: String,
    },
    /// Something else, in words that go on after the field's path.
    Other {
        /// What it is.
        problem: String,
    },
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName {
                what,
                nearest,
                known,
            } => match nearest {
                Some(nearest) => write!(f, "is not {what}; did you mean {nearest}?"),
                None => write!(f, "is not {what}, expected {}", one_of(known)),
            },
            Self::UnknownValue {
                found,
                nearest,
                known,
            } => match nearest {
                Some(nearest) => write!(f, "is {found:?}; did you mean {nearest}?"),
                None => write!(f, "is {found:?}, expected {}", one_of(known)),
            },
            Self::Missing => write!(f, "is missing"),
            Self::Twice { first } => write!(f, "is given twice, first on line {first}"),
            Self::Value { found, expected } => write!(f, "is {found}, expected {expected}"),
            Self::Other { problem } => f.write_str(problem),
        }
    }
}

/// `a`, or `a or b`, or `one of a, b, c`.
pub(crate) fn one_of(names: &[&str]) -> String {
    match names {
        [name] => (*name).to_owned(),
        [first, second] => format!("{first} or {second}"),
        names => format!("one of {}", names.join(", ")),
    }
}

fn place(path: &str) -> &str {
    if path.is_empty() {
        "the job file"
    } else {
        path
    }
}

fn on_line(line: Option<usize>) -> String {
    line.map(|line| format!(" (line {line})"))
        .unwrap_or_default()
}

/// The longest piece of foreign text that an error repeats, in characters.
const EXCERPT: usize = 80;

/// The beginning of `text`, for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_keeps_short_text_and_cuts_long_text_between_characters() {
        assert_eq!(excerpt("node-a"), "node-a");
        let long = "é".repeat(EXCERPT + 1);
        assert_eq!(excerpt(&long), format!("{}…", "é".repeat(EXCERPT)));
    }

    #[test]
    fn foreign_text_cannot_break_the_line() {
        let error = PlanError::PeerId {
            found: "a\nb".into(),
            expected: "host:slot/incarnation",
        };
        assert_eq!(
            error.to_string(),
            r#"peer id "a\nb": expected host:slot/incarnation"#
        );
    }
}
