//! What comes from the agents of all hosts, one after the other.

use std::collections::VecDeque;
use std::task::Poll;

use super::Member;
use super::link::{Incoming, Link};
use crate::channel::message::Order as AgentOrder;

/// The channels to all agents: what comes from any, by host.
pub(super) struct Links {
    pub(super) links: Vec<Link>,
    early: VecDeque<(usize, Incoming)>,
    /// Who is heard first the next time.
    turn: usize,
}

impl Links {
    pub(super) fn new(members: Vec<Member>) -> Self {
        let mut links = Vec::with_capacity(members.len());
        let mut early = VecDeque::new();
        for (index, member) in members.into_iter().enumerate() {
            early.extend(member.early.into_iter().map(|printed| (index, printed)));
            links.push(member.link);
        }
        Self {
            links,
            early,
            turn: 0,
        }
    }

    pub(super) async fn order(&self, order: &AgentOrder) {
        for link in &self.links {
            link.order(order.clone()).await;
        }
    }

    /// What comes next; none when all agents are gone. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<(usize, Incoming)> {
        if let Some(early) = self.early.pop_front() {
            return Some(early);
        }
        std::future::poll_fn(|context| {
            let count = self.links.len();
            let mut gone = 0;
            for index in (self.turn..count).chain(0..self.turn) {
                match self.links[index].incoming.poll_recv(context) {
                    Poll::Ready(Some(event)) => {
                        self.turn = (index + 1) % count;
                        return Poll::Ready(Some((index, event)));
                    }
                    Poll::Ready(None) => gone += 1,
                    Poll::Pending => {}
                }
            }
            if gone == count {
                Poll::Ready(None)
            } else {
                Poll::Pending
            }
        })
        .await
    }
}
