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
//! These changes were made to the engine, one at a time; each made the model named here fail:
//!
//! MUTATIONS
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
