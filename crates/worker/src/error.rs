//! What can go wrong between a process and its job.

use std::path::PathBuf;

/// Everything that joining, and the calls of a [`Worker`](crate::Worker), can answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable that every launched process has is missing.
    #[error("{variable} is not set, though {present} is")]
    MissingVariable {
        /// The variable.
        variable: &'static str,
        /// One that is set, which is why the other was expected.
        present: &'static str,
    },
    /// A variable's value cannot be understood.
    #[error("{variable} is {value:?}: expected {expected}")]
    BadVariable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it should look like.
        expected: String,
    },
    /// The file that a variable names is no good.
    #[error("{variable} is {}: {problem}", path.display())]
    BadFile {
        /// The variable.
        variable: &'static str,
        /// Its value.
        path: PathBuf,
        /// What is wrong with the file.
        problem: String,
    },
    /// The timeline that was asked for cannot be recorded.
    #[error("cannot record a timeline in {}", path.display())]
    Timeline {
        /// This rank's file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: carole_engine::Error,
    },
    /// Something between this process and its coordinator failed.
    #[error("cannot {attempted}")]
    Coordinator {
        /// What was attempted.
        attempted: String,
        /// What came of it.
        #[source]
        source: carole_coordinator::Error,
    },
    /// The operating system refused something.
    #[error("cannot {attempted}")]
    System {
        /// What was attempted.
        attempted: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The session, or an operation in it, failed.
    #[error(transparent)]
    Engine(#[from] carole_engine::Error),
}

impl Error {
    /// What a person might do about it.
    ///
    /// ```
    /// let error = carole_worker::Environment::from_variables(|name| {
    ///     (name == "CAROLE_RANK").then(|| "one".into())
    /// });
    /// assert!(error.unwrap_err().hint().unwrap().contains("carole run"));
    /// ```
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::MissingVariable { .. } => Some(
                "start the program with `carole run -n N -- PROGRAM`, or unset every CAROLE_ \
                 variable to run it alone",
            ),
            Self::BadVariable { variable, .. } if crate::settings::is_setting(variable) => None,
            Self::BadVariable { .. } => {
                Some("`carole run -n N -- PROGRAM` sets it; a program does not set it itself")
            }
            Self::Coordinator { .. } => Some(
                "a process can join only while the `carole run` that started it is running, and \
                 only once",
            ),
            Self::Timeline { .. } => {
                Some("CAROLE_TIMELINE, or the program, names the file; its folder must be there")
            }
            Self::BadFile { .. } | Self::System { .. } | Self::Engine(_) => None,
        }
    }

    /// The error with its chain of causes and its hint, for a place that takes one text.
    pub fn describe(&self) -> String {
        use std::fmt::Write;
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(text, ": {error}").expect("writing to a string cannot fail");
            cause = error.source();
        }
        if let Some(hint) = self.hint() {
            write!(text, " (hint: {hint})").expect("writing to a string cannot fail");
        }
        text
    }
}
