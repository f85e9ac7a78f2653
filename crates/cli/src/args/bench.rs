//! The arguments of `carole bench`.

use std::path::PathBuf;

use carole_engine::{DType, ReduceOp};
use clap::{ArgGroup, Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{PlaceArguments, duration, size};

/// Measure collectives on this host or between hosts, and check every result.
///
/// The ranks are processes of this program's own, started as `carole run` starts them. A time is
/// the maximum over the ranks; bandwidths are counted as nccl-tests counts them. Data goes to
/// standard output, talk to standard error. A wrong result is an error.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("joining").multiple(true)
    .args(["rank", "size", "coordinator_address", "token_file"]))]
pub(crate) struct BenchArguments {
    /// The operation, or `all`
    #[arg(value_name = "OP", value_enum)]
    pub(crate) operation: OperationChoice,

    /// How many ranks, or several numbers to measure one after the other; 2 by default, or as many
    /// as the hosts have slots
    #[arg(
        short = 'n',
        long = "ranks",
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = ranks,
        conflicts_with = "joining"
    )]
    pub(crate) ranks: Vec<u16>,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,

    /// Bytes of a rank's tensor, such as 4, 1KiB or 64MiB; for all-gather and gather what a rank
    /// gives, for scatter what it gets, for reduce-scatter and all-to-all all that it gives
    #[arg(
        long,
        value_name = "SIZE,…",
        default_value = "4,1KiB,64KiB,1MiB,16MiB,64MiB",
        value_delimiter = ',',
        value_parser = size::parse
    )]
    pub(crate) sizes: Vec<usize>,

    /// Reduce a model's parameter tensors in one call instead (all-reduce only)
    #[arg(long, value_name = "MODEL", conflicts_with = "sizes")]
    pub(crate) list: Option<String>,

    /// The type of the elements
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = dtype)]
    pub(crate) dtype: DType,

    /// How values are combined
    #[arg(long, value_name = "NAME", default_value = "sum", value_parser = reduce_op)]
    pub(crate) op: ReduceOp,

    /// How ranks reach one another
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub(crate) transport: TransportChoice,

    /// TCP connections between two ranks on different hosts, or with --transport tcp
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(crate) streams: u16,

    /// Where the tensors are
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub(crate) memory: MemoryChoice,

    /// Time to measure each size for
    #[arg(long, value_name = "S", default_value = "0.3", value_parser = duration::seconds)]
    pub(crate) seconds: f64,

    /// Time to warm up before each size; a fifth of --seconds by default
    #[arg(long, value_name = "S", value_parser = duration::seconds)]
    pub(crate) warmup: Option<f64>,

    /// Check every result (the default)
    #[arg(long, overrides_with = "no_check")]
    pub(crate) check: bool,

    /// Check nothing
    #[arg(long, overrides_with = "check")]
    pub(crate) no_check: bool,

    /// Vary what programs vary: random names, odd lengths, buffers that are not aligned and are
    /// new for every sample, two threads that call in turn
    #[arg(long)]
    pub(crate) vary: bool,

    /// Choose algorithms by this table, as `carole tune` writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,

    /// Also draw bandwidth and time over size
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    /// Be this rank of a benchmark across hosts; start one such command for each rank
    #[arg(long, value_name = "R", requires_all = ["size", "coordinator_address", "token_file"])]
    pub(crate) rank: Option<u16>,

    /// How many ranks there are across the hosts
    #[arg(long, value_name = "N", value_parser = ranks, requires = "rank")]
    pub(crate) size: Option<u16>,

    /// Where the ranks meet; rank 0 listens there
    #[arg(long, value_name = "HOST:PORT", requires = "rank")]
    pub(crate) coordinator_address: Option<String>,

    /// The job's secret: a file with 64 hexadecimal digits, the same on every host
    #[arg(long, value_name = "FILE", requires = "rank")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The arguments of a rank that `carole bench` starts.
#[derive(Debug, Args)]
pub(crate) struct BenchRankArguments {
    /// What to measure, as JSON
    pub(crate) plan: String,
}

/// The operations that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OperationChoice {
    /// Everybody gets the combination of everybody's tensors
    #[value(alias = "all_reduce")]
    AllReduce,
    /// Rank 0 gets it
    Reduce,
    /// Everybody gets rank 0's tensor
    Broadcast,
    /// Everybody gets its part of the combination
    #[value(alias = "reduce_scatter")]
    ReduceScatter,
    /// Everybody gets everybody's tensor
    #[value(alias = "all_gather")]
    AllGather,
    /// The same with tensors of unequal lengths
    #[value(alias = "all_gather_v")]
    AllGatherV,
    /// Rank 0 gets everybody's tensor
    Gather,
    /// Everybody gets its part of rank 0's tensor
    Scatter,
    /// Everybody gives everybody a part
    #[value(alias = "all_to_all")]
    AllToAll,
    /// Everybody waits for everybody
    Barrier,
    /// Everybody sends to the next rank and receives from the one before
    #[value(alias = "send_recv")]
    SendRecv,
    /// All of these
    All,
}

/// The values of `--transport`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TransportChoice {
    /// Shared memory inside a host, TCP across
    #[default]
    Auto,
    /// Shared memory only
    Shm,
    /// TCP only
    Tcp,
    /// Ranks that are threads of one process
    Memory,
}

/// The values of `--memory`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemoryChoice {
    /// From the usual allocator
    #[default]
    Private,
    /// From Carole's allocator of shared memory
    Shared,
}

/// The values of `--output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputChoice {
    /// A table for people
    #[default]
    Table,
    /// One object a line
    Json,
}

fn ranks(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Err("a benchmark has at least one rank".to_owned()),
        Ok(ranks) => Ok(ranks),
        Err(_) => Err("a number of ranks is from 1 to 65535".to_owned()),
    }
}

fn dtype(text: &str) -> Result<DType, String> {
    let dtype: DType = text.parse()?;
    if dtype == DType::Bool {
        return Err("booleans are not measured; u8 moves as many bytes".to_owned());
    }
    Ok(dtype)
}

fn reduce_op(text: &str) -> Result<ReduceOp, String> {
    text.parse()
}
