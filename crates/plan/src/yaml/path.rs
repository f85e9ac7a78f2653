//! Where in a document something is: `spec.roles.worker.command[2]`.

use std::fmt;

use crate::error::excerpt;

/// One step down into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The value of this key.
    Key(String),
    /// The item at this place of a list.
    Index(usize),
}

/// The steps from the top of a document to a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<Step>);

impl Path {
    /// The value of `key` in what this path leads to.
    pub(crate) fn key(&self, key: impl Into<String>) -> Self {
        self.with(Step::Key(key.into()))
    }

    /// The item at `index` in what this path leads to.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut path = self.clone();
        path.push(step);
        path
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.0.push(step);
    }

    /// Puts a step in front: paths are found from their ends.
    pub(crate) fn lead(&mut self, step: Step) {
        self.0.insert(0, step);
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

/// Keys are foreign text: what is not a plain word is quoted and shortened.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if !is_word(key) => write!(f, "[{:?}]", excerpt(key))?,
                Step::Key(key) if place == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

fn is_word(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=63).contains(&key.len()) && key.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_people_say_them() {
        let path = Path::default().key("spec").key("roles").key("worker");
        assert_eq!(path.to_string(), "spec.roles.worker");
        assert_eq!(
            path.key("command").index(2).to_string(),
            "spec.roles.worker.command[2]"
        );
    }

    #[test]
    fn foreign_keys_cannot_break_the_line() {
        let path = Path::default().key("a\nb").key("example.com/team");
        assert_eq!(path.to_string(), r#"["a\nb"]["example.com/team"]"#);
    }
}
