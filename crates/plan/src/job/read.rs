//! Reading a job, and writing it.

use std::fmt::{self, Write as _};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::spec::{ApiVersion, JobSpec, Kind, Metadata, Spec};
use crate::error::PlanError;
use crate::yaml::deserialize::read;
use crate::yaml::{Fault, Node, Path};

/// The largest job file, in bytes.
const LARGEST: usize = 1 << 20;

/// A job file as written: each field by itself is right, but they may not fit together.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: ApiVersion,
    kind: Kind,
    metadata: Metadata,
    spec: Spec,
}

impl From<Document> for JobSpec {
    fn from(document: Document) -> Self {
        Self {
            api_version: document.api_version,
            kind: document.kind,
            metadata: document.metadata,
            spec: document.spec,
        }
    }
}

impl JobSpec {
    /// Reads the text of a job file: one document of YAML 1.2, or JSON, of up to 1 MiB.
    ///
    /// ```
    /// let text = "
    /// apiVersion: carole.dev/v1alpha1
    /// kind: CaroleJob
    /// metadata: {name: digits}
    /// spec:
    ///   strategy: AllReduce
    ///   roles:
    ///     worker:
    ///       replica: 4
    ///       command: [python, digits.py]
    /// ";
    /// assert_eq!(
    ///     carole_plan::JobSpec::from_yaml(text).unwrap_err().to_string(),
    ///     "spec.roles.worker.replica is not a field; did you mean replicas? (line 9)"
    /// );
    /// ```
    pub fn from_yaml(text: &str) -> Result<Self, PlanError> {
        if text.len() > LARGEST {
            let found = format!("{} bytes long", text.len());
            return Err(Fault::value(Path::default(), found, "at most 1 MiB").into());
        }
        let root = Node::parse(text)?;
        let job = Self::from(read::<Document>(&root)?);
        job.check().map_err(|fault| {
            let line = root.line_of(&fault.path);
            fault.on_line(line)
        })?;
        Ok(job)
    }
}

/// Whatever a job is read from, it has been checked.
impl<'de> Deserialize<'de> for JobSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let job = Self::from(Document::deserialize(deserializer)?);
        job.validate().map_err(D::Error::custom)?;
        Ok(job)
    }
}

/// The form in which a job is written: JSON, defaults included.
impl fmt::Display for JobSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?;
        for character in text.chars() {
            if is_json_but_not_yaml(character) {
                write!(f, "\\u{:04x}", u32::from(character))?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Characters that JSON has in its strings as they are and YAML only escaped.
fn is_json_but_not_yaml(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}
