//! The authority on one job's membership.
//!
//! The crate has three parts that can be used apart:
//!
//! - [`state`]: the pure state machine. It decides who is in and why; it opens nothing, reads no
//!   clock and is told the time.
//! - `server` (a feature of that name): the state machine behind HTTP, with `Coordinator` as the
//!   handle for whoever runs it in the same process.
//! - [`client`]: a blocking client over plain sockets, for a training process that has no async
//!   runtime and should not link one. It finds a coordinator's host by [`addresses`], also in a
//!   statically linked program.
//!
//! # Expected flow
//!
//! Every rank of a fixed-size job registers its peer id and endpoint. When the last one has
//! registered, generation 1 is published and every long-poll for it returns. From then on members
//! poll for lost peers, which the agent beside the processes reports, and leave when they are done.
//!
//! # Guarantees
//!
//! - A published membership never changes; a rank belongs to the first peer that registered it.
//! - Registering, leaving and reporting a loss may be repeated: the first one counts.
//! - Every wait ends: with an answer, with the reason why there will be none, or with its timeout.
//!
//! # Assumptions and caveats
//!
//! Whoever holds the job's token is believed. Without TLS the token and the answers travel in the
//! clear, so listen on loopback or on an interface that only the job uses. The membership is fixed
//! and is kept in memory only.
//!
//! Nothing here starts a process, and nothing here knows about sessions or tensors.

pub mod client;
pub mod decision;
pub mod error;
mod http;
mod names;
pub mod state;
pub mod token;
pub mod wire;

#[cfg(feature = "server")]
mod extract;
#[cfg(feature = "server")]
pub mod handle;
#[cfg(feature = "server")]
mod problem;
#[cfg(feature = "server")]
pub mod server;

pub use client::Client;
pub use error::Error;
#[cfg(feature = "server")]
pub use handle::Coordinator;
pub use names::addresses;
#[cfg(feature = "server")]
pub use server::serve;
pub use state::State;
pub use token::Token;
