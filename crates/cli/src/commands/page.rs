//! `--terminal tui`: the page of a job, beside the launcher.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::anyhow;
use carole_launch::{Event, Interrupt, Order, Report, Roles};
use tokio::sync::mpsc::UnboundedSender;

use crate::failure::Failure;
use crate::tui::{self, Command, Happening};

/// Happenings that may wait for the page. What is printed beyond that is not shown.
const QUEUE: usize = 1024;

/// A page in a thread of its own.
pub(super) struct Page {
    happenings: SyncSender<Happening>,
    thread: JoinHandle<io::Result<()>>,
}

/// What must be there.
pub(super) fn check() -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(
        Failure::usage(anyhow!("--terminal tui: this is no terminal"))
            .with_hint("use --terminal current, or run it in a terminal"),
    )
}

impl Page {
    pub(super) fn open(
        job: &str,
        roles: &Roles,
        orders: UnboundedSender<Order>,
    ) -> Result<Self, Failure> {
        let (happenings, received) = sync_channel(QUEUE);
        let notices = happenings.clone();
        let thread = std::thread::Builder::new()
            .name("carole-page".into())
            .spawn(move || {
                let _logs = tui::redirect(move |notice| notices.try_send(notice).is_ok());
                tui::run(received, |command| match command {
                    Command::None => {}
                    Command::Interrupt | Command::Quit => {
                        // Nobody listens when the job is over.
                        let _ = orders.send(Order::Interrupt(Interrupt::Interrupt));
                    }
                })
            })
            .map_err(Failure::new)?;
        let page = Self { happenings, thread };
        page.tell(Happening::Named {
            job: job.to_owned(),
            ranks: roles.names(),
        });
        Ok(page)
    }

    /// Tells the page what happens to the job; the launcher never waits for it.
    pub(super) fn note(&self, event: &Event) {
        self.tell(event.clone().into());
    }

    fn tell(&self, happening: Happening) {
        // A page that cannot keep up misses something; one that was left needs nothing.
        let _ = self.happenings.try_send(happening);
    }

    /// Shows how the job ended, and waits until the person has seen it.
    pub(super) fn close(self, report: Option<&Report>) {
        if let Some(report) = report {
            let told = match &report.verdict {
                Some(verdict) => verdict.to_string(),
                None => "ended well".to_owned(),
            };
            // Waits: this one must not be missed. It fails when the page was left.
            let _ = self.happenings.send(Happening::Ended(told));
        }
        drop(self.happenings);
        match self.thread.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the page ended early"),
            Err(_) => tracing::warn!("the page failed"),
        }
    }
}
