//! The schema of a job file.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::name::{self, Name};
use super::quantity::{CPU_EXPECTED, Cpu, MEMORY_EXPECTED, Memory};
use super::spec::JobSpec;
use super::time_span::{self, TimeSpan};

impl JobSpec {
    /// The schema of a job file, as JSON schema of 2020-12 without references.
    ///
    /// It describes each field by itself; how they fit together is [`JobSpec::validate`]'s.
    pub fn schema() -> serde_json::Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
        });
        let schema = settings.into_generator().into_root_schema_for::<Self>();
        schema.to_value()
    }
}

/// A type whose schema is written out where it is used.
macro_rules! schema {
    ($of:ident, $schema:tt) => {
        impl JsonSchema for $of {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($of).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema!(Name, {
    "type": "string",
    "format": "name",
    "description": name::EXPECTED,
    "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    "minLength": 1,
    "maxLength": name::LONGEST,
});

schema!(TimeSpan, {
    "type": "string",
    "format": "time span",
    "description": time_span::EXPECTED,
    "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$",
    "minLength": 2,
});

// Written as Kubernetes writes its own quantities.
schema!(Cpu, {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "format": "cores",
    "description": CPU_EXPECTED,
    "pattern": QUANTITY,
    "x-kubernetes-int-or-string": true,
});

schema!(Memory, {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "format": "bytes",
    "description": MEMORY_EXPECTED,
    "pattern": QUANTITY,
    "x-kubernetes-int-or-string": true,
});

const QUANTITY: &str = r"^([0-9]+\.?[0-9]*|\.[0-9]+)(m|k|[KMGTPE]i|[MGTPE]|[eE][-+]?[0-9]+)?$";
