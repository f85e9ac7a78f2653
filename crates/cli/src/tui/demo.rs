//! A job that is only told of, to look at the page and to test it in a real terminal.

use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};

use anyhow::{Context, anyhow};
use carole_launch::render::Stream;
use carole_launch::{Event, Exit, Progress, Traffic, Usage};
use tracing::info;

use super::{Command, Happening, redirect, run};
use crate::failure::Failure;

/// Plays a job of so many ranks until a person leaves. With `panics`, being interrupted is too
/// much for it.
pub(crate) fn demo(ranks: usize, panics: bool) -> Result<ExitCode, Failure> {
    let (sender, happenings) = mpsc::channel();
    let notices = sender.clone();
    let redirected = redirect(move |happening| notices.send(happening).is_ok());
    let (asked, commands) = mpsc::channel();
    let page = std::thread::Builder::new()
        .name("carole-page".into())
        .spawn(move || {
            run(happenings, |command| {
                // Nobody listens when the job is over.
                let _ = asked.send(command);
            })
        })
        .context("cannot start the page's thread")
        .map_err(Failure::new)?;
    play(&sender, ranks);
    info!(size = ranks, "ranks started");
    let mut interrupts = 0;
    for command in commands {
        match command {
            Command::Interrupt => {
                assert!(!panics, "the demonstration was told to panic");
                interrupts += 1;
                stop(&sender, ranks, interrupts);
            }
            Command::Quit | Command::None => {}
        }
    }
    drop(redirected);
    let ended = page.join().map_err(|_| anyhow!("the page failed"));
    let ended = ended.map_err(Failure::new)?;
    ended.context("the page failed").map_err(Failure::new)?;
    println!("the page was left");
    Ok(ExitCode::SUCCESS)
}

/// Tells of a job in the middle of its work.
fn play(page: &Sender<Happening>, ranks: usize) {
    let named = Happening::Named {
        job: "demonstration".to_owned(),
        ranks: (0..ranks).map(|rank| format!("rank {rank}")).collect(),
    };
    tell(page, [named]);
    for rank in 0..ranks {
        let host = format!("host-{}", rank / 4);
        let started = Event::Started {
            rank,
            host: host.clone(),
            pid: 1000 + rank as i32,
        };
        tell(page, [started]);
        let lines = (0..50).map(|line| Event::Printed {
            rank,
            stream: Stream::Stdout,
            bytes: format!("\x1b[32mstep {line}\x1b[0m of rank {rank}: 損失 {line}\n").into(),
        });
        tell(page, lines);
        let progress = Progress {
            step: Some(50.0),
            total: Some(200.0),
            ..Progress::default()
        };
        let usage = Usage {
            cpu_percent: 99,
            memory: 1 << 30,
        };
        let traffic = Traffic {
            received: 12_000_000,
            sent: 11_000_000,
        };
        let used = Event::Usage {
            host,
            ranks: vec![(rank, usage)],
            traffic,
        };
        tell(page, [Event::Progress { rank, progress }, used]);
    }
}

/// The first time some ranks end, then all.
fn stop(page: &Sender<Happening>, ranks: usize, interrupts: u32) {
    let signal = if interrupts == 1 { 15 } else { 9 };
    let ending = if interrupts == 1 { ranks / 2 } else { ranks };
    let exit = Exit::Signal(signal);
    tell(page, (0..ending).map(|rank| Event::Exited { rank, exit }));
    if ending == ranks {
        tell(page, [Happening::Ended("interrupted".into())]);
    }
}

fn tell<H: Into<Happening>>(page: &Sender<Happening>, happenings: impl IntoIterator<Item = H>) {
    for happening in happenings {
        // Nobody listens once a person has left.
        let _ = page.send(happening.into());
    }
}
