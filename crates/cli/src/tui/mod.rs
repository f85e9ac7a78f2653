//! The page of `carole run --terminal tui`: hosts, ranks and logs in one terminal.
//!
//! # Expected flow
//!
//! The launcher runs [`run`] on a thread of its own, tells it of each [`Happening`], and carries
//! out the [`Command`]s that come back. Logs become notices on the page with [`redirect`].
//!
//! # Guarantees
//!
//! - What is shown and what a key does are decided purely, in [`model`]; time is passed in.
//! - The terminal is as before when the page ends: also after a panic of any thread, and after a
//!   signal that ends the process.
//! - Memory is bounded, however much ranks print.
//! - Nothing that a rank prints can move the cursor or change the terminal.
//!
//! # Assumptions
//!
//! Nobody else writes to the terminal or reads from it while the page is shown. Signals that the
//! launcher handles itself are handled before the page begins.

mod decode;
pub(crate) mod demo;
mod driver;
mod happening;
mod job;
mod layout;
mod line;
mod model;
mod notices;
mod page;
mod rank;
mod signals;
mod terminal;
mod text;
mod view;

pub(crate) use self::driver::run;
pub(crate) use self::happening::{Command, Happening};
pub(crate) use self::notices::{Log, redirect};
