//! What the ranks print, on its way to the output.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::lines::{LineSplitter, Tail};
use crate::output::{Output, Piece, Stream};
use crate::role::Roles;

/// The lines of all ranks, each with whose it is in front.
pub(super) struct Screen {
    ranks: Vec<Lines>,
    output: mpsc::Sender<Piece>,
}

struct Lines {
    prefix: Arc<[u8]>,
    splitters: [LineSplitter; 2],
    tail: Tail,
}

impl Screen {
    /// `hosts` names every rank's host, or nobody's where there is one only.
    pub(super) fn new(roles: &Roles, hosts: &[String], output: &Output) -> Self {
        let size = roles.size();
        let name = |number: usize| {
            if roles.are_equal() {
                number.to_string()
            } else {
                roles.describe(number)
            }
        };
        let width = (0..size)
            .map(|number| name(number).len())
            .max()
            .unwrap_or(1);
        let longest = hosts.iter().map(String::len).max().unwrap_or(0);
        let prefix = |rank: usize| match hosts.get(rank) {
            Some(host) => format!("{:>width$}@{host:<longest$}| ", name(rank)),
            None => format!("{:>width$}| ", name(rank)),
        };
        let ranks = (0..size).map(|rank| Lines {
            prefix: prefix(rank).into_bytes().into(),
            splitters: Default::default(),
            tail: Tail::default(),
        });
        Self {
            ranks: ranks.collect(),
            output: output.sender(),
        }
    }

    pub(super) async fn print(&mut self, rank: usize, stream: Stream, bytes: &[u8]) {
        self.show(rank, stream, |splitter, emit| splitter.feed(bytes, emit))
            .await;
    }

    /// A rank prints nothing more.
    pub(super) async fn finish(&mut self, rank: usize) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            self.show(rank, stream, |splitter, emit| splitter.finish(emit))
                .await;
        }
    }

    pub(super) fn last_lines(&self, rank: usize) -> Vec<String> {
        self.ranks[rank].tail.text()
    }

    async fn show(
        &mut self,
        rank: usize,
        stream: Stream,
        lines: impl FnOnce(&mut LineSplitter, &mut dyn FnMut(&[u8])),
    ) {
        // An agent names its own ranks only; a number beyond them would be its mistake.
        let Some(of) = self.ranks.get_mut(rank) else {
            return;
        };
        let splitter = match stream {
            Stream::Stdout => &mut of.splitters[0],
            Stream::Stderr => &mut of.splitters[1],
        };
        let mut bytes = Vec::new();
        lines(splitter, &mut |line| {
            of.tail.push(line);
            bytes.extend_from_slice(&of.prefix);
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        });
        if !bytes.is_empty() {
            // Nobody receives when the output was given up; then there is no one to tell.
            let _ = self.output.send(Piece { stream, bytes }).await;
        }
    }
}
