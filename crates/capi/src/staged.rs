//! Calls that are made of several operations, one after another.
//!
//! The ranks first compare what they are about to do; only when they agree does data move. A
//! blocking call does that on its own thread. A started one gets a thread, because each operation
//! is called when the one before has ended, whether anybody waits for it by then or not.

#![expect(
    unsafe_code,
    reason = "plans carry pointers to the caller's buffers to their thread"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use carole_engine::call::{splits_name, splits_row};
use carole_engine::span::Piece;
use carole_engine::{DType, Error, Group, Handle, Prepared, ReduceOp};

use crate::memory::Buffer;
use crate::outcome::{Failure, carole_result};
use crate::scope::Settings;

/// Runs one operation to its end.
pub(crate) trait Runner {
    fn run(&self, prepared: Prepared<'_>) -> Result<(), Failure>;
}

/// Runs operations on the caller's own thread.
pub(crate) struct Direct;

impl Runner for Direct {
    fn run(&self, prepared: Prepared<'_>) -> Result<(), Failure> {
        Ok(prepared.run()?)
    }
}

/// Several operations.
pub(crate) trait Plan {
    /// Runs them; the buffers that the plan points to must be valid until it returns.
    fn carry_out(
        &self,
        group: &Group,
        name: Option<&str>,
        settings: &Settings,
        runner: &dyn Runner,
    ) -> Result<(), Failure>;
}

/// Gathers one row of numbers from every member, under the name of the whole call or one derived
/// from it. Of its settings only the time limit is used.
fn gather_rows(
    group: &Group,
    name: Option<&str>,
    settings: &Settings,
    runner: &dyn Runner,
    mine: &[u64],
) -> Result<Vec<u64>, Failure> {
    let mut all = vec![0u64; mine.len() * group.size()];
    let settings = Settings {
        timeout: settings.timeout,
        ..Settings::default()
    };
    let call = settings.call(group, name);
    // SAFETY: both are borrowed until the operation is over: the runner returns only then.
    let prepared = unsafe {
        let (send, recv) = (mine.as_ptr().cast(), all.as_mut_ptr().cast());
        call.prepare_all_gather(send, recv, mine.len(), DType::U64)
    };
    runner.run(prepared)?;
    Ok(all)
}

/// An all-reduce of a list whose tensors have several types: one operation for each type.
pub(crate) struct MixedList {
    pub(crate) op: ReduceOp,
    /// By type, in the order of their numbers: what is sent, and where the results go.
    pub(crate) parts: Vec<(DType, Vec<Piece>, Vec<Piece>)>,
}

// SAFETY: the pieces describe the caller's buffers, which stay valid until the call is over
// whichever thread runs it.
unsafe impl Send for MixedList {}

impl MixedList {
    /// How many elements of each type there are.
    fn row(&self) -> [u64; DType::ALL.len()] {
        let mut row = [0; DType::ALL.len()];
        for (dtype, send, _) in &self.parts {
            let bytes: usize = send.iter().map(|piece| piece.bytes).sum();
            row[*dtype as usize] = (bytes / dtype.size()) as u64;
        }
        row
    }
}

fn describe(row: &[u64]) -> String {
    let types = DType::ALL.iter().zip(row).filter(|(_, count)| **count > 0);
    let texts: Vec<String> = types
        .map(|(dtype, count)| format!("{count} {dtype}"))
        .collect();
    if texts.is_empty() {
        "nothing".to_owned()
    } else {
        texts.join(" and ")
    }
}

impl Plan for MixedList {
    fn carry_out(
        &self,
        group: &Group,
        name: Option<&str>,
        settings: &Settings,
        runner: &dyn Runner,
    ) -> Result<(), Failure> {
        let of_type = |(dtype, _, _): &(DType, _, _)| name.map(|name| format!("{name}/{dtype}"));
        let names: Vec<Option<String>> = self.parts.iter().map(of_type).collect();
        // All are prepared before anything is sent: what this rank cannot ask for, it does not.
        let mut prepared = Vec::with_capacity(self.parts.len());
        for ((dtype, send, recv), name) in self.parts.iter().zip(&names) {
            let call = settings.call(group, name.as_deref());
            let (send, recv) = (send.iter().copied(), recv.iter().copied());
            // SAFETY: the pieces are valid until the plan has been carried out, as its maker
            // checked and the caller promised.
            prepared.push(unsafe { call.prepare_all_reduce_list(send, recv, *dtype, self.op) }?);
        }
        let mine = self.row();
        let rows = gather_rows(group, name, settings, runner, &mine)?;
        if let Some(other) = rows.chunks(mine.len()).position(|row| row != mine) {
            let (me, theirs) = (group.ranks()[group.rank()], &rows[other * mine.len()..]);
            let details = format!(
                "rank {me} asks for a list of {}, rank {} for {}",
                describe(&mine),
                group.ranks()[other],
                describe(&theirs[..mine.len()]),
            );
            let operation = match name {
                Some(name) => format!("all_reduce_list {name:?}"),
                None => "all_reduce_list".to_owned(),
            };
            return Err(Error::Mismatch { operation, details }.into());
        }
        prepared
            .into_iter()
            .try_for_each(|prepared| runner.run(prepared))
    }
}

/// An all-to-all with parts of different lengths.
pub(crate) struct Splits {
    pub(crate) dtype: DType,
    pub(crate) send: Buffer,
    pub(crate) send_counts: Vec<usize>,
    pub(crate) recv: Buffer,
    pub(crate) recv_counts: Vec<usize>,
}

// SAFETY: the buffers are the caller's and stay valid until the call is over, whichever thread
// runs it.
unsafe impl Send for Splits {}

impl Plan for Splits {
    fn carry_out(
        &self,
        group: &Group,
        name: Option<&str>,
        settings: &Settings,
        runner: &dyn Runner,
    ) -> Result<(), Failure> {
        let mine = splits_row(&self.send_counts, &self.recv_counts);
        let rows = name.map(splits_name);
        let rows = gather_rows(group, rows.as_deref(), settings, runner, &mine)?;
        let call = settings.call(group, name);
        call.compare_splits(&rows)?;
        let (send, recv) = (self.send.pointer.cast_const(), self.recv.pointer);
        // SAFETY: the buffers are valid until the plan has been carried out, as the caller
        // promised; they have the counts' lengths and are apart, as its maker checked.
        let prepared = unsafe {
            call.prepare_all_to_all_v(send, &self.send_counts, recv, &self.recv_counts, self.dtype)
        }?;
        runner.run(prepared)
    }
}

/// A plan on a thread of its own.
pub(crate) struct Staged {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    ended: Condvar,
}

#[derive(Default)]
struct Progress {
    aborted: bool,
    /// The operation that is in flight.
    current: Option<Arc<Handle>>,
    outcome: Option<Result<(), Failure>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner for Shared {
    fn run(&self, prepared: Prepared<'_>) -> Result<(), Failure> {
        let handle = {
            let mut progress = self.lock();
            let handle = Arc::new(prepared.start()?);
            if progress.aborted {
                // The others are told under the operation that they come to next.
                handle.abort();
            }
            progress.current = Some(Arc::clone(&handle));
            handle
        };
        let outcome = handle.wait();
        self.lock().current = None;
        Ok(outcome?)
    }
}

impl Staged {
    /// Starts the thread.
    pub(crate) fn start(
        plan: Box<dyn Plan + Send>,
        group: Group,
        name: String,
        settings: Settings,
    ) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let work = move || {
            let carry_out = || plan.carry_out(&group, Some(&name), &settings, &*own);
            let outcome = catch_unwind(AssertUnwindSafe(carry_out))
                .unwrap_or_else(|payload| Err(Failure::panic(&*payload)));
            own.lock().outcome = Some(outcome);
            own.ended.notify_all();
        };
        let builder = std::thread::Builder::new().name("carole-staged".into());
        let thread = builder.spawn(work).map_err(|error| {
            let message = format!("cannot start a thread for the operation: {error}");
            Failure::new(carole_result::CAROLE_ERROR_SYSTEM, message)
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.lock().outcome.is_some()
    }

    pub(crate) fn wait(&self) -> Result<(), Failure> {
        let mut progress = self.shared.lock();
        loop {
            if let Some(outcome) = &progress.outcome {
                return outcome.clone();
            }
            progress = self
                .shared
                .ended
                .wait(progress)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn abort(&self) {
        let mut progress = self.shared.lock();
        progress.aborted = true;
        let current = progress.current.clone();
        drop(progress);
        if let Some(handle) = current {
            handle.abort();
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.abort();
        if let Some(thread) = self.thread.take() {
            // Its panics were caught: it cannot fail.
            let _ = thread.join();
        }
    }
}
