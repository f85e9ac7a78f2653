//! Tensors from one member to one other.
//!
//! Both ends meet under the transfer's name, which no collective shares, in a group of two.

use super::{Between, Call, Element, Group, Prepared, run_now};
use crate::descriptor::Kind;
use crate::dtype::DType;
use crate::error::Result;
use crate::operation::Request;
use crate::span::Span;

impl Group {
    /// Sends a tensor to another member, which receives it under the same name.
    pub fn send<T: Element>(&self, to: usize, name: &str, tensor: &[T]) -> Result<()> {
        self.named(name).send(to, tensor)
    }

    /// Receives a tensor from another member.
    pub fn recv<T: Element>(&self, from: usize, name: &str, tensor: &mut [T]) -> Result<()> {
        self.named(name).recv(from, tensor)
    }
}

impl<'a> Call<'a> {
    /// Sends `count` elements of `dtype` to another member. The call must have a name.
    ///
    /// # Safety
    /// The pointer must be valid for `count` elements until the call is over.
    pub unsafe fn prepare_send(
        self,
        to: usize,
        pointer: *const u8,
        count: usize,
        dtype: DType,
    ) -> Result<Prepared<'a>> {
        let span = Span::one(pointer.cast_mut(), count * dtype.size());
        let request = Request {
            dtype,
            count: count as u64,
            send: span,
            ..Request::EMPTY
        };
        self.prepare_transfer(self.group.rank(), to, to, request)
    }

    /// Receives `count` elements of `dtype` from another member. The call must have a name.
    ///
    /// # Safety
    /// The pointer must be valid for writes of `count` elements until the call is over.
    pub unsafe fn prepare_recv(
        self,
        from: usize,
        pointer: *mut u8,
        count: usize,
        dtype: DType,
    ) -> Result<Prepared<'a>> {
        let span = Span::one(pointer, count * dtype.size());
        let request = Request {
            dtype,
            count: count as u64,
            recv: span,
            ..Request::EMPTY
        };
        self.prepare_transfer(from, self.group.rank(), from, request)
    }

    fn prepare_transfer(
        self,
        from: usize,
        to: usize,
        other: usize,
        request: Request,
    ) -> Result<Prepared<'a>> {
        let kind = Kind::Transfer;
        let Some(name) = self.name else {
            return self.invalid(kind, "it needs a name".into());
        };
        let size = self.group.size();
        if other >= size || from == to {
            let problem = format!("there is no other rank {other} in a group of {size}");
            return self.invalid(kind, problem);
        }
        let mut prepared = self.prepared(Request { kind, ..request });
        prepared.between = Some(Between { from, to, name });
        Ok(prepared)
    }

    /// Sends a tensor to another member, which receives it under the same name.
    pub fn send<T: Element>(self, to: usize, tensor: &[T]) -> Result<()> {
        let pointer = tensor.as_ptr().cast();
        // SAFETY: the slice is borrowed until the call is over.
        run_now(unsafe { self.prepare_send(to, pointer, tensor.len(), T::DTYPE) })
    }

    /// Receives a tensor from another member.
    pub fn recv<T: Element>(self, from: usize, tensor: &mut [T]) -> Result<()> {
        let pointer = tensor.as_mut_ptr().cast();
        // SAFETY: the slice is borrowed mutably until the call is over.
        run_now(unsafe { self.prepare_recv(from, pointer, tensor.len(), T::DTYPE) })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::session::{Options, Session, Transport};
    use crate::{Error, testing};

    /// On one host, and over connections.
    fn everywhere(size: usize, body: impl Fn(Session) + Sync) {
        for transport in [Transport::Auto, Transport::Tcp] {
            let options = Options {
                transport,
                ..Options::default()
            };
            testing::spawn_on(&vec![0; size], &options, &body);
        }
    }

    #[test]
    fn started_transfers_pass_one_another() {
        everywhere(3, |session| {
            let (world, me, size) = (session.world(), session.rank(), session.size());
            for length in [0, 1, 1000, 300_000] {
                let (next, previous) = ((me + 1) % size, (me + size - 1) % size);
                // Everybody receives first: only started ones do not wait for one another.
                let got = world.named("ring").start_recv(previous, vec![0u32; length]);
                let sent = world
                    .named("ring")
                    .start_send(next, vec![me as u32; length]);
                assert_eq!(got.unwrap().wait().unwrap(), vec![previous as u32; length]);
                assert_eq!(sent.unwrap().wait().unwrap(), vec![me as u32; length]);
            }
        });
    }

    #[test]
    fn a_transfer_has_a_time_limit_of_its_own() {
        everywhere(2, |session| {
            let (world, limit) = (session.world(), Duration::from_millis(30));
            if session.rank() == 0 {
                let call = world.named("nobody sends").timeout(limit);
                let started = call.start_recv(1, vec![0u8; 4]).unwrap();
                let blocking = world
                    .named("nobody receives")
                    .timeout(limit)
                    .send(1, &[1u8; 4]);
                for error in [started.wait().map(drop).unwrap_err(), blocking.unwrap_err()] {
                    let text = error.to_string();
                    assert!(
                        matches!(error, Error::Timeout { after, .. } if after == limit),
                        "{text}"
                    );
                    assert!(text.contains("rank 1"), "{text}");
                }
            }
            world.call().barrier().unwrap();
        });
    }

    #[test]
    fn an_aborted_transfer_ends_on_both_sides() {
        everywhere(2, |session| {
            let (world, limit) = (session.world(), Duration::from_secs(20));
            if session.rank() == 0 {
                let pending = world
                    .named("given up")
                    .start_recv(1, vec![0u8; 100])
                    .unwrap();
                pending.abort();
                assert!(matches!(
                    pending.wait(),
                    Err(Error::Aborted { rank: 0, .. })
                ));
                world.call().barrier().unwrap();
            } else {
                world.call().barrier().unwrap();
                let sent = world.named("given up").timeout(limit).send(0, &[1u8; 100]);
                assert!(
                    matches!(sent, Err(Error::Aborted { rank: 0, .. })),
                    "{sent:?}"
                );
            }
        });
    }

    #[test]
    fn what_is_no_transfer_is_refused() {
        everywhere(2, |session| {
            let world = session.world();
            let text = world.call().send(1, &[0u8]).unwrap_err().to_string();
            assert_eq!(text, "send/recv: it needs a name");
            for other in [session.rank(), 2] {
                let text = world
                    .named("x")
                    .recv(other, &mut [0u8])
                    .unwrap_err()
                    .to_string();
                assert!(
                    text.contains(&format!("no other rank {other} in a group of 2")),
                    "{text}"
                );
            }
        });
    }
}
