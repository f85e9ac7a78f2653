//! What is to be measured: the command line, checked once, in the form that ranks receive.

use anyhow::anyhow;
use carole_engine::{DType, ReduceOp};
use carole_plan::AlgorithmTable;
use serde::{Deserialize, Serialize};

use super::list;
use super::operation::Operation;
use crate::args::{BenchArguments, MemoryChoice, TransportChoice};
use crate::commands::table;
use crate::failure::Failure;

/// The part of the time budget that warms up, unless the command line says otherwise.
const WARM_UP_SHARE: f64 = 0.2;

/// Everything a rank needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<Case>,
    #[serde(with = "as_text")]
    pub(crate) dtype: DType,
    #[serde(with = "as_text")]
    pub(crate) op: ReduceOp,
    pub(crate) transport: TransportChoice,
    pub(crate) memory: MemoryChoice,
    pub(crate) streams: u16,
    pub(crate) budget: Budget,
    pub(crate) vary: bool,
    /// Which algorithm for which size, if not the default.
    pub(crate) table: Option<AlgorithmTable>,
}

/// How much time and care a case gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budget {
    pub(crate) seconds: f64,
    pub(crate) warmup: f64,
    pub(crate) check: bool,
}

impl Budget {
    /// So much time for each case, the usual warm-up, and results checked.
    pub(crate) fn new(seconds: f64) -> Self {
        Self {
            seconds,
            warmup: WARM_UP_SHARE * seconds,
            check: true,
        }
    }
}

/// One line of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    /// As the command line counts them; zero for a barrier.
    pub(crate) bytes: usize,
    /// A model's tensors instead of one.
    pub(crate) list: Option<String>,
}

impl Plan {
    /// The plan that a command line asks for.
    pub(super) fn new(arguments: &BenchArguments) -> Result<Self, Failure> {
        let operations = Operation::chosen(arguments.operation);
        let (dtype, op) = (arguments.dtype, arguments.op);
        if operations.iter().any(|operation| operation.reduces()) && !op.applies_to(dtype) {
            return Err(
                Failure::usage(anyhow!("--op {op} is not defined for --dtype {dtype}"))
                    .with_hint("and, or and xor need integers"),
            );
        }
        let cases = match &arguments.list {
            Some(name) => vec![list_case(name, &operations, dtype)?],
            None => sized_cases(&operations, &arguments.sizes, dtype)?,
        };
        let usual = Budget::new(arguments.seconds);
        let budget = Budget {
            warmup: arguments.warmup.unwrap_or(usual.warmup),
            check: !arguments.no_check,
            ..usual
        };
        Ok(Self {
            cases,
            dtype,
            op,
            transport: arguments.transport,
            memory: arguments.memory,
            streams: arguments.streams,
            budget,
            vary: arguments.vary,
            table: arguments.table.as_deref().map(table::read).transpose()?,
        })
    }

    /// The plan as far as `ranks` ranks can carry it out.
    pub(super) fn for_ranks(&self, ranks: usize) -> Result<Self, Failure> {
        let mut plan = self.clone();
        if ranks < 2 {
            plan.cases
                .retain(|case| case.operation != Operation::SendRecv);
        }
        if plan.cases.is_empty() {
            return Err(
                Failure::usage(anyhow!("send-recv needs two ranks, not {ranks}"))
                    .with_hint("-n 2 starts two"),
            );
        }
        Ok(plan)
    }

    /// About how long the measuring takes, in seconds.
    pub(crate) fn expected_seconds(&self) -> f64 {
        self.cases.len() as f64 * (self.budget.seconds + self.budget.warmup + 0.1)
    }
}

fn list_case(name: &str, operations: &[Operation], dtype: DType) -> Result<Case, Failure> {
    let lengths = list::lengths(name).ok_or_else(|| {
        Failure::usage(anyhow!("--list {name:?} is not a list of tensors"))
            .with_hint(format!("use {}", list::names()))
    })?;
    if operations != [Operation::AllReduce] {
        let given = if operations.len() == 1 {
            operations[0].name()
        } else {
            "all"
        };
        return Err(
            Failure::usage(anyhow!("--list does not go with {given}")).with_hint(format!(
                "lists are all-reduced: carole bench all-reduce --list {name}"
            )),
        );
    }
    let bytes = lengths.iter().sum::<usize>() * dtype.size();
    Ok(Case {
        operation: Operation::AllReduce,
        bytes,
        list: Some(name.to_owned()),
    })
}

fn sized_cases(
    operations: &[Operation],
    sizes: &[usize],
    dtype: DType,
) -> Result<Vec<Case>, Failure> {
    if let Some(size) = sizes
        .iter()
        .find(|size| **size == 0 || **size % dtype.size() != 0)
    {
        let error = anyhow!("--sizes: {size} bytes are no whole number of {dtype} elements");
        let hint = format!("one element has {} bytes", dtype.size());
        return Err(Failure::usage(error).with_hint(hint));
    }
    let case = |operation, bytes| Case {
        operation,
        bytes,
        list: None,
    };
    Ok(operations
        .iter()
        .flat_map(|&operation| match operation {
            Operation::Barrier => vec![case(operation, 0)],
            _ => sizes.iter().map(|&bytes| case(operation, bytes)).collect(),
        })
        .collect())
}

/// Values that travel as the text that people write.
mod as_text {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err = String>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_way_to_a_rank() {
        let case = Case {
            operation: Operation::AllGatherV,
            bytes: 12,
            list: None,
        };
        let plan = Plan {
            cases: vec![case],
            dtype: DType::Bf16,
            op: ReduceOp::Max,
            transport: TransportChoice::Tcp,
            memory: MemoryChoice::Private,
            streams: 1,
            budget: Budget {
                seconds: 0.3,
                warmup: 0.06,
                check: true,
            },
            vary: true,
            table: Some(AlgorithmTable::default()),
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
    }

    #[test]
    fn one_rank_alone_sends_nothing() {
        let sized = sized_cases(&Operation::ALL, &[4], DType::F32).unwrap();
        let plan = Plan {
            cases: sized,
            dtype: DType::F32,
            op: ReduceOp::Sum,
            transport: TransportChoice::Auto,
            memory: MemoryChoice::Private,
            streams: 1,
            budget: Budget {
                seconds: 0.3,
                warmup: 0.06,
                check: true,
            },
            vary: false,
            table: None,
        };
        assert_eq!(plan.for_ranks(2).unwrap().cases.len(), 11);
        let alone = plan.for_ranks(1).unwrap();
        assert!(
            alone
                .cases
                .iter()
                .all(|case| case.operation != Operation::SendRecv)
        );
    }
}
