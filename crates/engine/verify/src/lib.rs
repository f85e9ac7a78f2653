//! The engine's protocol of shared memory under [loom](https://docs.rs/loom), which runs it in
//! every order, and with every value that a load may see, that the memory model allows.
//!
//! This is the engine's own code: `local/` (board, ledger, attendance, transfer, reduction) and
//! what it uses are compiled from the engine's files. In the place of raw memory ([`region`]), of
//! system calls ([`sys`]), of kernels ([`kernels`]) and of arenas ([`arena`]) this crate has
//! modules of the same names over modelled atomics, and much smaller tables. Payload is tracked
//! in blocks of [`region::BLOCK`] bytes: an access that another thread's access is not ordered
//! with is an error, and so are wrong bytes.
//!
//! What is left out, and why:
//! - The asymmetric fence: ringing without a fence relies on `membarrier`, which the memory model
//!   knows nothing of. The models run the symmetric variant, which `announce_sleep` and
//!   `sleepers` choose where the kernel lacks it. Where the one has a fence on either side, the
//!   other has the kernel run it on the ringer's core: the same points of the program are ordered.
//! - Payload inside a slot is read by kernels as plain bytes, while the owner stores it as
//!   atomics; the models look at the atomics themselves.
//! - Which of its slots a rank has open or has consumed (`active`, `consumed`) is not modelled: it
//!   is private to a rank and ordered by the ledger's lock.
//! - Tensors in arenas: nobody waits for anybody but at the beginning and at the end.
//! - More than two ranks and two threads a model, and more preemptions than each model says: the
//!   number of orders grows beyond any limit of time.
//!
//! # That a model fails when it should
//!
//! These changes were made to the engine, one at a time; each made a model of the group fail:
//!
//! - `posting`: `fill` leaves the old state, or has no fence; `publish` stores the state relaxed;
//!   `find` has no fence, or does not read the state again; acknowledgements are stored, or
//!   loaded, relaxed.
//! - `lanes`: granting or learning of a lane, taking it, leaving it or freeing it is relaxed; the
//!   first that leaves frees it.
//! - `sleep`: no fence in `sleepers`, or in `announce_sleep`; `ring` does not count; `park` does
//!   not look once more; whoever stops sleeping takes the announcement back for all.
//! - `reduction`: staged, reduced or taken is stored, or loaded, relaxed; a result is overwritten
//!   before all have taken it; a chunk is staged before all have reduced the one under it; the
//!   short last chunk does not wait for results.
//! - `transfer`: staged or taken is stored, or loaded, relaxed; a buffer is always free; a posting
//!   without payload space keeps the counters of the one before.
//! - `debts`: who gave up looks for the grant before the abort, or relaxed; only who knows already
//!   that a lane is needed waits for it.
//!
//! Three more change nothing, and no model fails: the first load of the state in `find` relaxed
//! (the fence is behind it), `abort` relaxed (a fence of `sleepers` is before it, but only in the
//! symmetric variant), and reading the bell's word after the announcement instead of before.
#![expect(
    dead_code,
    unreachable_pub,
    reason = "the engine's files hold more than the models call"
)]

mod arena;
mod kernels;
pub mod models;
mod region;
mod sys;

#[path = "../../src/descriptor.rs"]
mod descriptor;
#[path = "../../src/dtype.rs"]
mod dtype;
#[path = "../../src/key.rs"]
mod key;
#[path = "../../src/local/mod.rs"]
mod local;
#[path = "../../src/span.rs"]
mod span;
