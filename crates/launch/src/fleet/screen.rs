//! What the ranks print, on its way to the terminal and to files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use crate::error::Error;
use crate::output::{Output, Writer};
use crate::render::{Exception, Label, Out, Renderer, Stream, Style, Tail, last_frame};
use crate::request::{OutputRequest, StreamSet, Streams, Terminal};
use crate::role::Roles;

/// The host in labels of a job on one host: not shown.
const ONE_HOST: &str = "localhost";

/// The lines of all ranks, from their pipes to where they are shown and kept.
pub(super) struct Screen {
    renderer: Renderer,
    out: Out,
    writer: Writer,
    started: Instant,
    ranks: Vec<Rank>,
}

/// What becomes of one rank's output.
struct Rank {
    tail: Tail,
    shown: StreamSet,
    files: [Option<File>; 2],
}

impl Screen {
    /// `hosts` names every rank's host, or nobody's where there is one only; `local` is every
    /// rank's place on its host.
    pub(super) fn new(
        request: &OutputRequest,
        colour: bool,
        roles: &Roles,
        hosts: &[String],
        local: &[usize],
        output: &Output,
    ) -> Result<Self, Error> {
        let labels: Vec<Label> = (0..roles.size())
            .map(|number| {
                let task = roles.task(number);
                Label {
                    rank: task.index,
                    host: hosts.get(number).map_or(ONE_HOST, String::as_str).into(),
                    role: task.role.name().into(),
                }
            })
            .collect();
        let style = Style {
            prefix: request.prefix,
            collapse: request.collapse,
            colour,
        };
        let mut ranks = Vec::new();
        for (number, local) in local.iter().enumerate() {
            let name = roles.describe(number).replace(' ', "-");
            ranks.push(Rank::new(request, *local, &name)?);
        }
        Ok(Self {
            renderer: Renderer::new(style, &labels),
            out: Out::new(),
            writer: output.writer(),
            started: Instant::now(),
            ranks,
        })
    }

    pub(super) fn print(&mut self, number: usize, stream: Stream, bytes: &[u8]) {
        // An agent names its own ranks only; a number beyond them would be its mistake.
        let Some(rank) = self.ranks.get_mut(number) else {
            return;
        };
        rank.tail.feed(stream, bytes);
        rank.keep(stream, bytes);
        if rank.shows(stream) {
            let now = self.started.elapsed();
            self.renderer
                .feed(now, number, stream, bytes, &mut self.out);
            self.show();
        }
    }

    /// A rank prints nothing more.
    pub(super) fn finish(&mut self, number: usize) {
        if number < self.ranks.len() {
            let now = self.started.elapsed();
            for stream in [Stream::Stdout, Stream::Stderr] {
                self.renderer.end(now, number, stream, &mut self.out);
            }
            self.show();
        }
    }

    /// When [`tick`](Self::tick) next has something to show.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.renderer.wake_at().map(|at| self.started + at)
    }

    pub(super) fn tick(&mut self) {
        self.renderer.tick(self.started.elapsed(), &mut self.out);
        self.show();
    }

    /// Nobody prints any more.
    pub(super) fn end(&mut self) {
        self.renderer.finish(self.started.elapsed(), &mut self.out);
        self.show();
    }

    pub(super) fn last_lines(&self, number: usize) -> Vec<String> {
        self.ranks[number].tail.text()
    }

    /// What a rank that failed said of it.
    pub(super) fn exception(&self, number: usize) -> Option<Exception> {
        last_frame(&self.ranks[number].tail.lines())
    }

    fn show(&mut self) {
        for (stream, bytes) in self.out.pieces() {
            self.writer.put(stream, bytes);
        }
        self.out.clear();
    }
}

impl Rank {
    fn new(request: &OutputRequest, local: usize, name: &str) -> Result<Self, Error> {
        let redirected = of(&request.redirect, local);
        let teed = of(&request.tee, local);
        // A folder alone means that everything is kept and shown.
        let all = request.log_folder.is_some()
            && request.redirect == Streams::default()
            && request.tee == Streams::default();
        let filtered =
            !request.only_local_ranks.is_empty() && !request.only_local_ranks.contains(&local);
        let visible = request.terminal == Terminal::Current && !filtered;
        let file = |wanted: bool, stream: &str| match &request.log_folder {
            Some(folder) if wanted || all => open(folder, &format!("{name}.{stream}")).map(Some),
            _ => Ok(None),
        };
        Ok(Self {
            tail: Tail::default(),
            shown: StreamSet {
                stdout: visible && (!redirected.stdout || teed.stdout),
                stderr: visible && (!redirected.stderr || teed.stderr),
            },
            files: [
                file(redirected.stdout || teed.stdout, "stdout")?,
                file(redirected.stderr || teed.stderr, "stderr")?,
            ],
        })
    }

    fn shows(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout => self.shown.stdout,
            Stream::Stderr => self.shown.stderr,
        }
    }

    fn keep(&mut self, stream: Stream, bytes: &[u8]) {
        let file = &mut self.files[stream as usize];
        let written = file.as_mut().map(|file| file.write_all(bytes));
        if let Some(Err(error)) = written {
            tracing::warn!(%error, "cannot write a log file; the rest of it is missing");
            *file = None;
        }
    }
}

fn of(streams: &Streams, local: usize) -> StreamSet {
    let named = streams.named.iter().find(|(rank, _)| *rank == local);
    named.map_or(streams.others, |(_, set)| *set)
}

fn open(folder: &Path, name: &str) -> Result<File, Error> {
    let opened: io::Result<File> =
        fs::create_dir_all(folder).and_then(|()| File::create(folder.join(name)));
    opened.map_err(|source| Error::LogFolder {
        folder: folder.to_owned(),
        source,
    })
}

/// The earlier of two moments.
pub(super) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
