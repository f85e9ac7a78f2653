//! The arguments of `carole doctor`.

use std::time::Duration;

use clap::Args;

use super::{OutputChoice, PlaceArguments, duration};

/// Check whether jobs will run, here and on hosts.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// The network interfaces that ranks would use, the first that a host has
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(crate) network_interfaces: Vec<String>,

    /// How long hosts may take to answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    pub(crate) timeout: Duration,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}
