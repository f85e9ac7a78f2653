//! A YAML text as a tree of nodes that know their lines.
//!
//! The tree is bounded: nesting by [`DEPTH`], and what aliases multiply by [`WEIGHT`], so that a
//! small file cannot take much memory.

use std::collections::{BTreeMap, HashMap};

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use super::Fault;
use super::path::{Path, Step};
use super::scalar::Meaning;
use crate::error::{FieldProblem, excerpt};

/// How deep lists and mappings may lie in one another.
const DEPTH: usize = 32;
/// What the values of a document may weigh together, in bytes of text and [`NODE`]s.
const WEIGHT: usize = 8 << 20;
/// What a value weighs beside its text.
const NODE: usize = 32;

/// A value, and the line it is on; of a list or mapping that belongs to a key, the key's line.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar { text: String, meaning: Meaning },
    List(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// A key of a mapping and what it stands for.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

impl Node {
    /// Reads a text that must hold exactly one document.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        Builder::default().read(text)
    }

    /// What was found, for an error: foreign text quoted and shortened.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::List(_) => "a list".to_owned(),
            Value::Mapping(_) => "a mapping".to_owned(),
            Value::Scalar { text, meaning } => match meaning {
                Meaning::Nothing => "empty".to_owned(),
                Meaning::Text => format!("{:?}", excerpt(text)),
                _ => excerpt(text),
            },
        }
    }

    /// Whether nothing was written, or `null`.
    pub(crate) fn is_nothing(&self) -> bool {
        let nothing = Meaning::Nothing;
        matches!(&self.value, Value::Scalar { meaning, .. } if *meaning == nothing)
    }

    /// The text of an unquoted number, `true` or `false`.
    pub(crate) fn number_or_bool(&self) -> Option<String> {
        match &self.value {
            Value::Scalar { text, meaning }
                if !matches!(meaning, Meaning::Text | Meaning::Nothing) =>
            {
                Some(excerpt(text))
            }
            _ => None,
        }
    }

    /// The line of what `path` leads to, or of the last step on the way that is there.
    pub(crate) fn line_of(&self, path: &Path) -> usize {
        let mut node = self;
        let mut line = self.line;
        for step in path.steps() {
            let next = match (&node.value, step) {
                (Value::Mapping(entries), Step::Key(key)) => entries
                    .iter()
                    .find(|entry| entry.key == *key)
                    .map(|entry| &entry.node),
                (Value::List(items), Step::Index(index)) => items.get(*index),
                _ => None,
            };
            match next {
                Some(next) => (node, line) = (next, next.line),
                None => break,
            }
        }
        line
    }

    fn weight(&self) -> usize {
        NODE + match &self.value {
            Value::Scalar { text, .. } => text.len(),
            Value::List(items) => items.iter().map(Self::weight).sum(),
            Value::Mapping(entries) => entries
                .iter()
                .map(|entry| entry.key.len() + entry.node.weight())
                .sum(),
        }
    }

    fn depth(&self) -> usize {
        match &self.value {
            Value::Scalar { .. } => 0,
            Value::List(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Value::Mapping(entries) => {
                let depths = entries.iter().map(|entry| entry.node.depth());
                1 + depths.max().unwrap_or(0)
            }
        }
    }
}

/// A list or mapping that is not complete yet.
struct Open {
    line: usize,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Mapping {
        entries: Vec<Entry>,
        /// The line on which each key was first given.
        lines: BTreeMap<String, usize>,
        /// The key whose value comes next, and its line.
        key: Option<(String, usize)>,
    },
}

#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Node>,
    weight: usize,
    root: Option<Node>,
}

impl Builder {
    fn read(mut self, text: &str) -> Result<Node, Fault> {
        let options = granit_parser::options! {
            disallow_directives: true,
            flow_nesting_limit: DEPTH,
            block_nesting_limit: DEPTH,
        };
        let mut documents = 0;
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|error| unreadable(text, &error))?;
            let line = span.start.line();
            match event {
                Event::DocumentStart(..) => {
                    documents += 1;
                    if documents > 1 {
                        return Err(whole("holds a second document: one file is one job", line));
                    }
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let tagged = self.is_tagged_as_text(tag.as_deref(), line)?;
                    let quoted = tagged || style != ScalarStyle::Plain;
                    let meaning = if quoted {
                        Meaning::Text
                    } else {
                        Meaning::of(&text)
                    };
                    if !quoted && text == "<<" && self.expects_key() {
                        return Err(self.here("has a merge key (<<): write its fields out", line));
                    }
                    let text = text.into_owned();
                    let weight = NODE + text.len();
                    let value = Value::Scalar { text, meaning };
                    self.complete(Node { line, value }, anchor, weight)?;
                }
                Event::SequenceStart(_, anchor, tag) => {
                    self.refuse_tag(tag.as_deref(), line)?;
                    self.start(line, anchor, Content::List(Vec::new()))?;
                }
                Event::MappingStart(_, anchor, tag) => {
                    self.refuse_tag(tag.as_deref(), line)?;
                    let content = Content::Mapping {
                        entries: Vec::new(),
                        lines: BTreeMap::new(),
                        key: None,
                    };
                    self.start(line, anchor, content)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.end()?,
                Event::Alias(anchor) => {
                    let Some(mut node) = self.anchors.get(&anchor).cloned() else {
                        return Err(self.here("is an alias of what it is part of", line));
                    };
                    if self.open.len() + node.depth() > DEPTH {
                        return Err(self.here(too_deep(), line));
                    }
                    node.line = line;
                    let weight = node.weight();
                    self.complete(node, 0, weight)?;
                }
                _ => {}
            }
        }
        self.root
            .filter(|root| !root.is_nothing())
            .ok_or_else(|| Fault::other(Path::default(), "is empty"))
    }

    /// Whether a scalar's tag says that it is text; any other tag is refused.
    fn is_tagged_as_text(&self, tag: Option<&Tag>, line: usize) -> Result<bool, Fault> {
        match tag {
            Some(tag) if tag.is_yaml_core_schema_tag("str") || tag.original() == "!" => Ok(true),
            other => self.refuse_tag(other, line).map(|()| false),
        }
    }

    fn refuse_tag(&self, tag: Option<&Tag>, line: usize) -> Result<(), Fault> {
        match tag {
            None => Ok(()),
            Some(tag) => {
                let tag = excerpt(&tag.original());
                Err(self.here(format!("has the tag {tag:?}, expected none"), line))
            }
        }
    }

    /// Whether the next node is a key.
    fn expects_key(&self) -> bool {
        let open = self.open.last().map(|open| &open.content);
        matches!(open, Some(Content::Mapping { key: None, .. }))
    }

    fn start(&mut self, line: usize, anchor: usize, content: Content) -> Result<(), Fault> {
        if self.open.len() == DEPTH {
            return Err(self.here(too_deep(), line));
        }
        if self.expects_key() {
            return Err(self.here(KEY_NOT_TEXT, line));
        }
        let line = match self.open.last().map(|open| &open.content) {
            Some(Content::Mapping {
                key: Some((_, line)),
                ..
            }) => *line,
            _ => line,
        };
        self.open.push(Open {
            line,
            anchor,
            content,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Mapping { entries, .. } => Value::Mapping(entries),
        };
        let line = open.line;
        self.complete(Node { line, value }, open.anchor, NODE)
    }

    /// A node is complete: it becomes a key, a value, an item or the root. `weight` is what it adds
    /// to what was weighed already.
    fn complete(&mut self, node: Node, anchor: usize, weight: usize) -> Result<(), Fault> {
        let line = node.line;
        self.weight += weight;
        if anchor != 0 {
            self.weight += node.weight();
        }
        if self.weight > WEIGHT {
            return Err(whole("holds too many values, aliases included", line));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Mapping {
                entries,
                lines,
                key,
            } => match (key.take(), node.value) {
                (Some((key, line)), value) => {
                    let node = Node {
                        line: node.line,
                        value,
                    };
                    entries.push(Entry { key, line, node });
                }
                (None, Value::Scalar { text, .. }) => {
                    if let Some(&first) = lines.get(&text) {
                        let problem = FieldProblem::Twice { first };
                        return Err(Fault::new(self.path().key(text), problem).on_line(line));
                    }
                    lines.insert(text.clone(), line);
                    *key = Some((text, line));
                }
                (None, _) => return Err(self.here(KEY_NOT_TEXT, line)),
            },
        }
        Ok(())
    }

    /// A fault of what is being read.
    fn here(&self, problem: impl Into<String>, line: usize) -> Fault {
        Fault::other(self.path(), problem).on_line(line)
    }

    /// Where the next node belongs.
    fn path(&self) -> Path {
        let mut path = Path::default();
        for open in &self.open {
            match &open.content {
                Content::List(items) => path.push(Step::Index(items.len())),
                Content::Mapping {
                    key: Some((key, _)),
                    ..
                } => path.push(Step::Key(key.clone())),
                Content::Mapping { key: None, .. } => {}
            }
        }
        path
    }
}

const KEY_NOT_TEXT: &str = "has a key that is a list or a mapping";

fn too_deep() -> String {
    format!("nests more than {DEPTH} levels deep")
}

/// A fault of the document as a whole.
fn whole(problem: &str, line: usize) -> Fault {
    Fault::other(Path::default(), problem).on_line(line)
}

/// A text that is not YAML. A tab, which looks like spaces, is often noticed one line late.
fn unreadable(text: &str, error: &ScanError) -> Fault {
    let line = error.marker().line();
    let mut near = text
        .lines()
        .enumerate()
        .take(line)
        .skip(line.saturating_sub(2));
    if let Some((tab, _)) = near.find(|(_, source)| is_indented_with_tab(source)) {
        return whole("has a tab in its indentation: use spaces", tab + 1);
    }
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => whole(&too_deep(), line),
        kind => {
            let problem = excerpt(&kind.to_string().replace(char::is_control, " "));
            whole(&format!("is not YAML: {problem}"), line)
        }
    }
}

fn is_indented_with_tab(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with('\t')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlanError;

    fn error(text: &str) -> String {
        PlanError::from(Node::parse(text).unwrap_err()).to_string()
    }

    fn show(node: &Node) -> String {
        match &node.value {
            Value::Scalar { .. } => format!("{}@{}", node.describe(), node.line),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(show).collect();
                format!("[{}]@{}", items.join(" "), node.line)
            }
            Value::Mapping(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|entry| format!("{}: {}", entry.key, show(&entry.node)))
                    .collect();
                format!("{{{}}}@{}", entries.join(" "), node.line)
            }
        }
    }

    fn read(text: &str) -> String {
        show(&Node::parse(text).unwrap())
    }

    #[test]
    fn nodes_know_their_lines() {
        assert_eq!(
            read("# first\na: 1\nb:\n  - no\n  - c: 'true'\n    d: ~\n"),
            "{a: 1@2 b: [\"no\"@4 {c: \"true\"@5 d: empty@6}@5]@3}@2"
        );
        assert_eq!(read("{\"a\": [1.5,\n true]}"), "{a: [1.5@1 true@2]@1}@1");
        assert_eq!(read("!!str 5"), "\"5\"@1");
    }

    #[test]
    fn aliases_are_read_within_bounds() {
        assert_eq!(read("a: &x [1]\nb: *x"), "{a: [1@1]@1 b: [1@1]@2}@1");
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let before = format!("*a{}, ", level - 1).repeat(10);
            bomb = format!("{bomb}a{level}: &a{level} [{before}]\n");
        }
        assert!(
            error(&bomb).contains("holds too many values"),
            "{}",
            error(&bomb)
        );
        assert_eq!(
            error("a: &x\n  b: *x\n"),
            "a.b is an alias of what it is part of (line 2)"
        );
        assert!(error("a: *x").contains("unknown anchor (line 1)"));
    }

    #[test]
    fn depth_is_bounded_with_and_without_aliases() {
        let nest = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(Node::parse(&nest(DEPTH)).is_ok());
        assert!(error(&nest(DEPTH + 1)).contains("levels deep (line 1)"));
        assert!(error(&nest(100_000)).contains("levels deep (line 1)"));
        let half = DEPTH / 2;
        let deep = format!(
            "a: &x {}\nb: {}*x{}",
            nest(half),
            "[".repeat(half),
            "]".repeat(half)
        );
        assert!(
            error(&deep).contains("levels deep (line 2)"),
            "{}",
            error(&deep)
        );
    }

    #[test]
    fn what_is_no_single_document_is_said_in_one_line() {
        for text in ["", "\n", "# nothing\n", "---\n", "---\n...\n", "~"] {
            assert_eq!(error(text), "the job file is empty", "{text:?}");
        }
        assert_eq!(
            error("a: 1\n---\nb: 2\n"),
            "the job file holds a second document: one file is one job (line 2)"
        );
    }

    #[test]
    fn tabs_are_named() {
        for text in ["a:\n\tb: 1\n", "a:\n  \tb: 1\n  c: 2\n"] {
            assert_eq!(
                error(text),
                "the job file has a tab in its indentation: use spaces (line 2)",
                "{text:?}"
            );
        }
        assert_eq!(
            read("a:\t1"),
            "{a: 1@1}@1",
            "between key and value it does no harm"
        );
    }

    #[test]
    fn keys_are_given_once_and_are_text() {
        assert_eq!(
            error("a:\n  b: 1\n  c: 2\n  b: 3\n"),
            "a.b is given twice, first on line 2 (line 4)"
        );
        assert_eq!(
            error("a:\n  ? [1]\n  : 2\n"),
            "a has a key that is a list or a mapping (line 2)"
        );
        assert_eq!(
            error("a: &x {b: 1}\nc:\n  <<: *x\n"),
            "c has a merge key (<<): write its fields out (line 3)"
        );
        assert_eq!(
            error("a: !!binary aGk="),
            "a has the tag \"!!binary\", expected none (line 1)"
        );
        for text in [
            "a: !!int '5'",
            "a: !!str [5]",
            "a: !!map {}",
            "%YAML 1.1\n---\na: yes",
        ] {
            assert!(Node::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            read("'<<': 1"),
            "{<<: 1@1}@1",
            "in quotes it is a key like any other"
        );
    }

    #[test]
    fn what_is_not_yaml_names_the_line() {
        for text in [
            "a: 1\nb: [1, 2\n",
            "a: 1\n b: 2\n",
            "a: 1\n\"b: 2",
            "a: 1\nb: }",
        ] {
            let error = error(text);
            assert!(error.starts_with("the job file is not YAML: "), "{error}");
            assert!(error.contains("(line "), "{error}");
        }
    }
}
