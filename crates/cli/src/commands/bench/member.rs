//! What every rank does, wherever it runs: all cases in turn, in one session.

use anyhow::{Context, ensure};
use carole_engine::{DType, Group, Kind, Options, Result, Session, Transport};

use super::buffer::{Place, Source};
use super::flag;
use super::list;
use super::measure::{Sampler, Samples, is_batched, measure};
use super::measurement::{Measurement, rounded};
use super::operation::{Operation, ROOT};
use super::pattern::{Pattern, Value};
use super::plan::{Case, Plan};
use super::vary::Varying;
use super::work::{Shape, Work};
use crate::args::{MemoryChoice, TransportChoice};

/// How sessions of this plan are formed.
pub(super) fn options(plan: &Plan) -> Options {
    let transport = match plan.transport {
        TransportChoice::Tcp => Transport::Tcp,
        TransportChoice::Auto | TransportChoice::Shm | TransportChoice::Memory => Transport::Auto,
    };
    Options {
        transport,
        streams: plan.streams.into(),
        table: plan.table.clone().unwrap_or_default(),
        ..Options::default()
    }
}

/// Measures all cases with the other members; on rank 0, `report` gets each result at once.
pub(super) fn take_part(
    session: &Session,
    plan: &Plan,
    report: &mut dyn FnMut(Measurement) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let transport = transport_name(plan.transport, session.hosts());
    ensure!(
        plan.transport != TransportChoice::Shm || transport == "shm",
        "--transport shm: the ranks do not share a host"
    );
    let group = session.world();
    for case in &plan.cases {
        let flag_ns = flag_time(&group)?;
        let shape = shape(&group, plan, case);
        let samples = dispatch(session, plan, case, &shape)
            .with_context(|| format!("measuring {}", describe(case)))?;
        if group.rank() == ROOT {
            let counted = shape.counted() * plan.dtype.size();
            let blank = Measurement {
                op: case.operation,
                list: case.list.clone(),
                ranks: group.size(),
                bytes: case.bytes,
                median_us: 0.0,
                min_us: 0.0,
                p90_us: 0.0,
                algbw_gbps: 0.0,
                busbw_gbps: 0.0,
                transport: transport.into(),
                algorithm: algorithm(&group, plan.dtype, &shape).into(),
                dtype: plan.dtype.to_string(),
                reduction: plan.op.to_string(),
                memory: memory_name(plan.memory).into(),
                vary: plan.vary,
                iterations: 0,
                batch: 0,
                check: None,
                flag_ns,
            };
            report(blank.with_samples(&samples, counted))?;
        }
    }
    // Nobody leaves while others still work.
    group.call().barrier().context("leaving together")
}

/// The flag's time on rank 0, while the others wait and let their cores be.
fn flag_time(group: &Group) -> Result<Option<f64>> {
    let time = if group.rank() == ROOT {
        flag::nanoseconds()
    } else {
        None
    };
    group.call().barrier()?;
    Ok(time.map(rounded))
}

fn shape(group: &Group, plan: &Plan, case: &Case) -> Shape {
    Shape {
        operation: case.operation,
        op: plan.op,
        rank: group.rank(),
        ranks: group.size(),
        count: case.bytes / plan.dtype.size(),
        list: case
            .list
            .as_deref()
            .and_then(list::lengths)
            .unwrap_or_default(),
    }
}

fn dispatch(session: &Session, plan: &Plan, case: &Case, shape: &Shape) -> anyhow::Result<Samples> {
    let samples = match plan.dtype {
        DType::U8 | DType::Bool => measure_type::<u8>(session, plan, case, shape),
        DType::U16 => measure_type::<u16>(session, plan, case, shape),
        DType::U32 => measure_type::<u32>(session, plan, case, shape),
        DType::U64 => measure_type::<u64>(session, plan, case, shape),
        DType::I8 => measure_type::<i8>(session, plan, case, shape),
        DType::I16 => measure_type::<i16>(session, plan, case, shape),
        DType::I32 => measure_type::<i32>(session, plan, case, shape),
        DType::I64 => measure_type::<i64>(session, plan, case, shape),
        DType::F16 => measure_type::<half::f16>(session, plan, case, shape),
        DType::Bf16 => measure_type::<half::bf16>(session, plan, case, shape),
        DType::F32 => measure_type::<f32>(session, plan, case, shape),
        DType::F64 => measure_type::<f64>(session, plan, case, shape),
    };
    Ok(samples?)
}

fn measure_type<T: Value>(
    session: &Session,
    plan: &Plan,
    case: &Case,
    shape: &Shape,
) -> Result<Samples> {
    let group = &session.world();
    let source = match plan.memory {
        MemoryChoice::Private => Source::Private,
        MemoryChoice::Shared => Source::Shared(session.clone()),
    };
    let batched = is_batched(case.bytes, case.list.is_some());
    let pattern = Pattern::<T>::new(plan.op, group.size());
    if plan.vary {
        let mut varying = Varying::new(group, shape.clone(), pattern, source)?;
        return measure(group, &mut varying, plan.budget, batched);
    }
    let work = Work::new(shape, &source, Place::Aligned)?;
    measure(
        group,
        &mut Steady {
            group,
            work,
            pattern,
        },
        plan.budget,
        batched,
    )
}

/// The usual sampler: the same tensors for all samples, unnamed calls, one thread.
struct Steady<'a, T> {
    group: &'a Group,
    work: Work<T>,
    pattern: Pattern<T>,
}

impl<T: Value> Sampler for Steady<'_, T> {
    fn sample(&mut self, batch: usize, count: usize, times: &mut Vec<f64>) -> Result<()> {
        for _ in 0..count {
            times.push(self.work.time(self.group, &[], batch)?);
        }
        Ok(())
    }

    fn is_right(&mut self) -> Result<bool> {
        self.work.fill(&self.pattern);
        self.work.time(self.group, &[], 1)?;
        let right = self.work.is_right(&self.pattern);
        self.work.clear();
        Ok(right)
    }
}

/// Which algorithm the engine takes for what rank 0 gives.
fn algorithm(group: &Group, dtype: DType, shape: &Shape) -> &'static str {
    let kind = match shape.operation {
        Operation::AllReduce => Kind::AllReduce,
        Operation::Reduce => Kind::Reduce,
        Operation::Broadcast => Kind::Broadcast,
        Operation::ReduceScatter => Kind::ReduceScatter,
        Operation::AllGather => Kind::AllGather,
        Operation::AllGatherV => Kind::AllGatherV,
        Operation::Gather => Kind::Gather,
        Operation::Scatter => Kind::Scatter,
        Operation::AllToAll => Kind::AllToAll,
        Operation::Barrier => Kind::Barrier,
        Operation::SendRecv => Kind::Transfer,
    };
    group.algorithm_for(kind, dtype, shape.given() * dtype.size())
}

/// What data really travelled through, by the hosts' numbers.
fn transport_name(chosen: TransportChoice, hosts: &[usize]) -> &'static str {
    let first = |rank: usize| !hosts[..rank].contains(&hosts[rank]);
    match chosen {
        TransportChoice::Memory => "memory",
        TransportChoice::Tcp => "tcp",
        TransportChoice::Auto | TransportChoice::Shm => {
            match (0..hosts.len()).filter(|rank| first(*rank)).count() {
                0 | 1 => "shm",
                count if count == hosts.len() => "tcp",
                _ => "shm+tcp",
            }
        }
    }
}

fn memory_name(memory: MemoryChoice) -> &'static str {
    match memory {
        MemoryChoice::Private => "private",
        MemoryChoice::Shared => "shared",
    }
}

fn describe(case: &Case) -> String {
    match &case.list {
        Some(list) => format!("{} of {list}", case.operation.name()),
        None => format!("{} of {} bytes", case.operation.name(), case.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transport_follows_from_who_shares_a_host() {
        let auto = |hosts: &[usize]| transport_name(TransportChoice::Auto, hosts);
        assert_eq!(auto(&[0, 0, 0]), "shm");
        assert_eq!(auto(&[0, 1, 2]), "tcp");
        assert_eq!(auto(&[0, 1, 0]), "shm+tcp");
        assert_eq!(transport_name(TransportChoice::Tcp, &[0, 1]), "tcp");
    }
}
