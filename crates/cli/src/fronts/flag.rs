//! A launcher's flags as a table, and a flag as it was given.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::anyhow;

use crate::failure::Failure;

/// A flag of a launcher. `D` is what the launcher's command line is gathered in.
pub(super) struct Flag<D: 'static> {
    /// Its names with their dashes, the usual one first.
    pub(super) names: &'static [&'static str],
    /// What follows it.
    pub(super) values: Values,
    /// What help calls its values, or an example of them; empty without any.
    pub(super) placeholder: &'static str,
    /// What Carole does with it.
    pub(super) handling: Handling<D>,
}

impl<D> Flag<D> {
    /// A flag that stands alone.
    pub(super) const fn switch(names: &'static [&'static str], handling: Handling<D>) -> Self {
        Self {
            names,
            values: Values::None,
            placeholder: "",
            handling,
        }
    }

    /// A flag with a value.
    pub(super) const fn value(
        names: &'static [&'static str],
        placeholder: &'static str,
        handling: Handling<D>,
    ) -> Self {
        Self {
            names,
            values: Values::One,
            placeholder,
            handling,
        }
    }

    /// A flag with two values, each a word of its own.
    pub(super) const fn pair(
        names: &'static [&'static str],
        placeholder: &'static str,
        handling: Handling<D>,
    ) -> Self {
        Self {
            names,
            values: Values::Two,
            placeholder,
            handling,
        }
    }

    /// What Carole does with it, in a line.
    pub(super) fn told(&self) -> Cow<'static, str> {
        match self.handling {
            Handling::Honoured(text, _)
            | Handling::Sets(text, _)
            | Handling::Accepted(text)
            | Handling::AcceptedIf(text, _) => text.into(),
            Handling::Refused { why, hint } => format!("refused: {why}; {hint}").into(),
            Handling::Help => "prints this".into(),
            Handling::Version => "prints Carole's version".into(),
        }
    }
}

/// How many values follow a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Values {
    None,
    One,
    Two,
}

/// What Carole does with a flag, and what help and the launcher's page say of it.
pub(super) enum Handling<D> {
    /// It does what the launcher does.
    Honoured(&'static str, fn(&mut D, &Given) -> Result<(), Failure>),
    /// The ranks get this variable, or exactly this one where its value stands behind it.
    Sets(
        &'static str,
        fn(&mut D, &Given, &str) -> Result<(), Failure>,
    ),
    /// Nothing, because the same comes about in another way: `no effect: …`.
    Accepted(&'static str),
    /// The same, if the value is one for which that holds.
    AcceptedIf(&'static str, fn(&Given) -> Result<(), Failure>),
    /// It is an error.
    Refused {
        /// Why, after the flag's name.
        why: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
    /// It asks for the flags.
    Help,
    /// It asks for the version.
    Version,
}

/// A flag as somebody gave it.
#[derive(Debug)]
pub(super) struct Given {
    /// The name as it was written.
    pub(super) name: String,
    /// Its values; none where a switch stands alone.
    pub(super) values: Vec<OsString>,
}

impl Given {
    /// The value as it is.
    pub(super) fn raw(&self) -> OsString {
        self.values.first().cloned().unwrap_or_default()
    }

    /// The value as a path.
    pub(super) fn path(&self) -> PathBuf {
        self.raw().into()
    }

    /// The value as text.
    pub(super) fn text(&self) -> Result<&str, Failure> {
        self.text_at(0)
    }

    /// One of two values as text.
    pub(super) fn text_at(&self, index: usize) -> Result<&str, Failure> {
        let value = self.values.get(index).map_or(Some(""), |it| it.to_str());
        value.ok_or_else(|| {
            let name = &self.name;
            Failure::usage(anyhow!("the value of {name} is not valid UTF-8"))
                .with_hint(format!("write the value of {name} in UTF-8"))
        })
    }

    /// The value as a number.
    pub(super) fn number<T: FromStr>(&self, expected: &str, example: &str) -> Result<T, Failure> {
        let text = self.text()?;
        text.parse().map_err(|_| self.wrong(expected, example))
    }

    /// The value as a whole number, 0 included.
    pub(super) fn whole<T: FromStr>(&self) -> Result<T, Failure> {
        self.number("a whole number", "4")
    }

    /// The value as how many there are of something, at least one.
    pub(super) fn count(&self) -> Result<usize, Failure> {
        match self.number("a whole number from 1", "4") {
            Ok(0) => Err(self.wrong("a whole number from 1", "4")),
            other => other,
        }
    }

    /// The value as a port.
    pub(super) fn port(&self) -> Result<u16, Failure> {
        match self.number("a port from 1 to 65535", "2222") {
            Ok(0) => Err(self.wrong("a port from 1 to 65535", "2222")),
            other => other,
        }
    }

    /// The value as whole seconds.
    pub(super) fn seconds(&self) -> Result<Duration, Failure> {
        let seconds = self.number("a whole number of seconds", "60")?;
        Ok(Duration::from_secs(seconds))
    }

    /// What is said of a value that cannot be.
    pub(super) fn wrong(&self, expected: &str, example: &str) -> Failure {
        let name = &self.name;
        let value = self.raw();
        let value = value.to_string_lossy();
        Failure::usage(anyhow!("{name} is {value:?}, expected {expected}"))
            .with_hint(format!("such as {name} {example}"))
    }

    /// What is said of a value that the launcher takes and Carole does not.
    pub(super) fn refused(&self, why: &str, hint: &str) -> Failure {
        let mut words = self.name.clone();
        for value in &self.values {
            words.push(' ');
            words += &value.to_string_lossy();
        }
        Failure::usage(anyhow!("{words}: {why}")).with_hint(hint)
    }
}
