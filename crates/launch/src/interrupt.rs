//! Signals by which a person or the system asks the launcher to stop.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::fleet::Order;

/// Which signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The terminal closed.
    HangUp,
    /// Ctrl-C.
    Interrupt,
    /// Asked to end.
    Terminate,
}

impl Interrupt {
    const ALL: [Self; 3] = [Self::HangUp, Self::Interrupt, Self::Terminate];

    /// The signal's number.
    pub fn signal(self) -> i32 {
        match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }
}

/// Passes interrupts on as orders until the receiver is gone.
///
/// The handlers are in place when this returns. A signal that this process was started to ignore
/// (`nohup`) stays ignored.
pub fn forward_interrupts(orders: &mpsc::UnboundedSender<Order>) -> Result<(), Error> {
    let ignored = ignored_signals();
    for interrupt in Interrupt::ALL {
        if ignored >> (interrupt.signal() - 1) & 1 == 1 {
            continue;
        }
        let mut signals = signal(SignalKind::from_raw(interrupt.signal()))
            .map_err(|source| Error::Signals { source })?;
        let orders = orders.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if orders.send(Order::Interrupt(interrupt)).is_err() {
                    break;
                }
            }
        });
    }
    Ok(())
}

/// The signals this process ignores, signal n in bit n - 1; none where the system does not say.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
