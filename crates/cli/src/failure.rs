//! What a person is told when a command fails.

use std::fmt::{Display, Write};
use std::io::IsTerminal;
use std::process::ExitCode;

/// A failed command: the error with its causes, more lines about it, a hint, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    error: anyhow::Error,
    details: Vec<String>,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The exit code when the command line or the environment is at fault.
    const USAGE: u8 = 2;

    /// A failure of what was asked for.
    pub(crate) fn new(error: impl Into<anyhow::Error>) -> Self {
        Self {
            error: error.into(),
            details: Vec::new(),
            hint: None,
            code: 1,
        }
    }

    /// A failure of how it was asked for.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: Self::USAGE,
            ..Self::new(error)
        }
    }

    /// Exits with `code` instead, such as a launched program's own.
    pub(crate) fn with_code(self, code: i32) -> Self {
        // A program's code has eight bits; what does not fit is a failure all the same.
        Self {
            code: u8::try_from(code).unwrap_or(1),
            ..self
        }
    }

    pub(crate) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    pub(crate) fn with_details(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }

    /// The exit code.
    #[cfg(test)]
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// What went wrong, in a line.
    pub(crate) fn message(&self) -> String {
        format!("{:#}", self.error)
    }

    /// Tells the person and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        eprint!("{}", self.render(colours()));
        ExitCode::from(self.code)
    }

    /// The lines that [`report`](Self::report) shows.
    pub(crate) fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        let mut line = |label: &str, colour: u8, what: &dyn Display| {
            let result = if colours {
                writeln!(text, "\x1b[1;{colour}m{label}:\x1b[0m {what}")
            } else {
                writeln!(text, "{label}: {what}")
            };
            result.expect("writing to a string cannot fail");
        };
        line("error", 31, &self.error);
        for cause in self.error.chain().skip(1) {
            line("cause", 31, &cause);
        }
        if let Some(hint) = &self.hint {
            line("hint", 36, hint);
        }
        for detail in &self.details {
            text += detail;
            text.push('\n');
        }
        text
    }
}

/// Whether to colour what goes to standard error.
fn colours() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
    std::io::stderr().is_terminal() && !refused && !dumb
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_is_followed_by_its_causes_a_hint_and_details() {
        let error = anyhow!("connection refused").context("cannot connect");
        let failure = Failure::new(error)
            .with_hint("start it first")
            .with_details(vec!["last words".into()]);
        let expected = "error: cannot connect\ncause: connection refused\n\
                        hint: start it first\nlast words\n";
        assert_eq!(failure.render(false), expected);
        assert!(
            failure
                .render(true)
                .starts_with("\x1b[1;31merror:\x1b[0m cannot connect\n")
        );
    }

    #[test]
    fn a_code_that_does_not_fit_is_still_a_failure() {
        assert_eq!(Failure::new(anyhow!("x")).with_code(139).code, 139);
        assert_eq!(Failure::new(anyhow!("x")).with_code(-1).code, 1);
    }
}
