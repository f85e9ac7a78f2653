//! `libcarole`: Carole for C, and for whatever can call C.
//!
//! Every function here is one of `include/carole.h`, which is generated from this source; its
//! comments are written for readers of the header. The names of types and of their values are C's
//! for the same reason. Behind each function is a door of `carole-worker` or `carole-engine`; what
//! this crate adds is the border: pointers, numbers and strings are checked before they are
//! believed, errors become a code and a text, and panics stop here.
//!
//! | module | what it holds |
//! |---|---|
//! | [`outcome`] | result codes, the last error, the border |
//! | [`codes`] | element types, reduce operations, transports and other choices as numbers |
//! | [`options`] | structs that can grow: configuration, a call's options, a list's tensors |
//! | [`session`], [`group`] | joining, leaving, and who is where |
//! | [`collective`], [`transfer`] | calls that return when they are done |
//! | [`start`], [`request`] | calls that return at once, and their handles |
//! | [`shared`] | memory that the ranks of a host share |
//! | [`store`] | named blobs and queues |
//! | [`monitor`] | metrics and timelines |
//! | [`log`] | where log lines go |
//!
//! Behind them: `memory` checks buffers, `scope` reads what all calls share, `prepare` turns
//! arguments into the engine's prepared calls, `staged` runs calls that are made of several.
//!
//! # Room for what comes
//!
//! The structs begin with their size and the enums leave numbers free, so that what is added does not
//! change what is there.

pub mod codes;
pub mod collective;
pub mod group;
pub mod log;
mod memory;
pub mod monitor;
pub mod options;
pub mod outcome;
mod prepare;
pub mod request;
mod scope;
pub mod session;
pub mod shared;
mod staged;
pub mod start;
pub mod store;
pub mod transfer;

// Handles go between C's threads, where no compiler looks.
const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<session::carole_session>();
    shared::<group::carole_group>();
    shared::<request::carole_request>();
};
