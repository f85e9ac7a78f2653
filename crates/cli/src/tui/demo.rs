//! A job that is only told of, to look at the page and to test it in a real terminal.

use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};

use anyhow::{Context, anyhow};
use carole_launch::Exit;
use carole_launch::render::Stream;
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
    let job = "demonstration".to_owned();
    let mut happenings = vec![Happening::Named { job, size: ranks }];
    for rank in 0..ranks {
        let host = format!("host-{}", rank / 4);
        happenings.push(Happening::Started {
            rank,
            name: format!("rank {rank}"),
            host: host.clone(),
            pid: 1000 + rank as i32,
        });
        for line in 0..50 {
            let text = format!("\x1b[32mstep {line}\x1b[0m of rank {rank}: 損失 {line}\n");
            happenings.push(Happening::Printed {
                rank,
                stream: Stream::Stdout,
                bytes: text.into(),
            });
        }
        happenings.push(Happening::Progress {
            rank,
            step: 50,
            total: Some(200),
            rate: Some(12.5),
            text: String::new(),
        });
        happenings.push(Happening::Usage {
            rank,
            cpu_percent: 99.0,
            memory: 1 << 30,
        });
        happenings.push(Happening::Network {
            host,
            received: 12_000_000,
            sent: 11_000_000,
        });
    }
    tell(page, happenings);
}

/// The first time some ranks end, then all.
fn stop(page: &Sender<Happening>, ranks: usize, interrupts: u32) {
    let signal = if interrupts == 1 { 15 } else { 9 };
    let ending = if interrupts == 1 { ranks / 2 } else { ranks };
    let exits = (0..ending).map(|rank| Happening::Exited {
        rank,
        exit: Exit::Signal(signal),
    });
    tell(page, exits.collect());
    if ending == ranks {
        tell(page, vec![Happening::Ended("interrupted".into())]);
    }
}

fn tell(page: &Sender<Happening>, happenings: Vec<Happening>) {
    for happening in happenings {
        // Nobody listens once a person has left.
        let _ = page.send(happening);
    }
}
