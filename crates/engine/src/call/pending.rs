//! Started calls: they own their tensors until they are waited for.

use super::{Call, Element, Handle, Prepared};
use crate::dtype::ReduceOp;
use crate::error::Result;

/// A started operation that owns its tensors. Dropped before its end, it is given up.
pub struct Pending<T> {
    // Dropped first: afterwards nobody touches the tensors.
    handle: Handle,
    result: Vec<T>,
    /// What is only read.
    _sent: Vec<T>,
}

impl<T> Pending<T> {
    /// `prepared` works on the memory of these two vectors, and on nothing else.
    fn start(prepared: Prepared<'_>, sent: Vec<T>, result: Vec<T>) -> Result<Self> {
        Ok(Self {
            handle: prepared.start()?,
            result,
            _sent: sent,
        })
    }

    /// Whether it is over; moves it on if it is not.
    pub fn test(&self) -> bool {
        self.handle.test()
    }

    /// Gives it up, on every member.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Waits for the end and gives the result, in the memory that was handed in for it.
    pub fn wait(self) -> Result<Vec<T>> {
        self.handle.wait()?;
        Ok(self.result)
    }
}

/// Each is the started form of the call of the same name, and checks the same.
///
/// ```
/// use carole_engine::{ReduceOp, testing};
///
/// testing::spawn(2, |session| {
///     let (world, rank) = (session.world(), session.rank() as f32);
///     let sum = world.named("gradient").start_all_reduce(vec![rank; 1000], ReduceOp::Sum).unwrap();
///     let all = world.named("losses").start_all_gather(vec![rank], vec![0.0; 2]).unwrap();
///     // ... other work ...
///     assert_eq!(all.wait().unwrap(), [0.0, 1.0]);
///     assert_eq!(sum.wait().unwrap()[999], 1.0);
/// });
/// ```
impl Call<'_> {
    /// Starts [`Call::barrier`].
    pub fn start_barrier(self) -> Result<Pending<()>> {
        Pending::start(self.prepare_barrier(), Vec::new(), Vec::new())
    }

    /// Starts [`Call::all_reduce`].
    pub fn start_all_reduce<T: Element>(
        self,
        mut tensor: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<T>> {
        // SAFETY: the result owns the memory, and ends the operation before it goes.
        let prepared = unsafe { self.all_reduce_on(&mut tensor, op) }?;
        Pending::start(prepared, Vec::new(), tensor)
    }

    /// Starts [`Call::all_reduce_list`].
    pub fn start_all_reduce_list<T: Element>(
        self,
        mut tensors: Vec<Vec<T>>,
        op: ReduceOp,
    ) -> Result<Pending<Vec<T>>> {
        let slices = tensors.iter_mut().map(Vec::as_mut_slice);
        // SAFETY: as above.
        let prepared = unsafe { self.all_reduce_list_on(slices, op) }?;
        Pending::start(prepared, Vec::new(), tensors)
    }

    /// Starts [`Call::reduce`].
    pub fn start_reduce<T: Element>(
        self,
        mut tensor: Vec<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<Pending<T>> {
        // SAFETY: as above.
        let prepared = unsafe { self.reduce_on(&mut tensor, op, root) }?;
        Pending::start(prepared, Vec::new(), tensor)
    }

    /// Starts [`Call::reduce_scatter`].
    pub fn start_reduce_scatter<T: Element>(
        self,
        send: Vec<T>,
        mut recv: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<T>> {
        // SAFETY: as above, for both.
        let prepared = unsafe { self.reduce_scatter_on(&send, &mut recv, op) }?;
        Pending::start(prepared, send, recv)
    }

    /// Starts [`Call::broadcast`].
    pub fn start_broadcast<T: Element>(
        self,
        mut tensor: Vec<T>,
        root: usize,
    ) -> Result<Pending<T>> {
        // SAFETY: as above.
        let prepared = unsafe { self.broadcast_on(&mut tensor, root) }?;
        Pending::start(prepared, Vec::new(), tensor)
    }

    /// Starts [`Call::all_gather`].
    pub fn start_all_gather<T: Element>(
        self,
        send: Vec<T>,
        mut recv: Vec<T>,
    ) -> Result<Pending<T>> {
        // SAFETY: as above, for both.
        let prepared = unsafe { self.all_gather_on(&send, &mut recv) }?;
        Pending::start(prepared, send, recv)
    }

    /// Starts [`Call::all_gather_v`].
    pub fn start_all_gather_v<T: Element>(
        self,
        send: Vec<T>,
        mut recv: Vec<T>,
        counts: &[usize],
    ) -> Result<Pending<T>> {
        // SAFETY: as above, for both.
        let prepared = unsafe { self.all_gather_v_on(&send, &mut recv, counts) }?;
        Pending::start(prepared, send, recv)
    }

    /// Starts [`Call::gather`].
    pub fn start_gather<T: Element>(
        self,
        send: Vec<T>,
        mut recv: Vec<T>,
        root: usize,
    ) -> Result<Pending<T>> {
        // SAFETY: as above, for both.
        let prepared = unsafe { self.gather_on(&send, &mut recv, root) }?;
        Pending::start(prepared, send, recv)
    }

    /// Starts [`Call::scatter`].
    pub fn start_scatter<T: Element>(
        self,
        send: Vec<T>,
        mut recv: Vec<T>,
        root: usize,
    ) -> Result<Pending<T>> {
        // SAFETY: as above, for both.
        let prepared = unsafe { self.scatter_on(&send, &mut recv, root) }?;
        Pending::start(prepared, send, recv)
    }

    /// Starts [`Call::all_to_all`].
    pub fn start_all_to_all<T: Element>(
        self,
        send: Vec<T>,
        mut recv: Vec<T>,
    ) -> Result<Pending<T>> {
        // SAFETY: as above, for both.
        let prepared = unsafe { self.all_to_all_on(&send, &mut recv) }?;
        Pending::start(prepared, send, recv)
    }

    /// Starts [`Call::send`].
    ///
    /// ```
    /// use carole_engine::testing;
    ///
    /// testing::spawn(2, |session| {
    ///     let (world, other) = (session.world(), 1 - session.rank());
    ///     // Both send and receive at once, in no particular order.
    ///     let sent = world.named("swap").start_send(other, vec![session.rank() as u64; 9]).unwrap();
    ///     let got = world.named("swap").start_recv(other, vec![0u64; 9]).unwrap();
    ///     assert_eq!(got.wait().unwrap(), [other as u64; 9]);
    ///     sent.wait().unwrap();
    /// });
    /// ```
    pub fn start_send<T: Element>(self, to: usize, tensor: Vec<T>) -> Result<Pending<T>> {
        let pointer = tensor.as_ptr().cast();
        // SAFETY: as above.
        let prepared = unsafe { self.prepare_send(to, pointer, tensor.len(), T::DTYPE) }?;
        Pending::start(prepared, Vec::new(), tensor)
    }

    /// Starts [`Call::recv`] of a tensor as long as the one handed in.
    pub fn start_recv<T: Element>(self, from: usize, mut tensor: Vec<T>) -> Result<Pending<T>> {
        let pointer = tensor.as_mut_ptr().cast();
        // SAFETY: as above.
        let prepared = unsafe { self.prepare_recv(from, pointer, tensor.len(), T::DTYPE) }?;
        Pending::start(prepared, Vec::new(), tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// All of them in flight at once, started in another order on each rank.
    #[test]
    fn every_started_call_gives_what_its_blocking_form_gives() {
        const SIZE: usize = 3;
        testing::spawn(SIZE, |session| {
            let world = session.world();
            let rank = session.rank();
            let mine: Vec<u32> = (0..6).map(|i| (100 * rank + i) as u32).collect();
            let counts = [1, 2, 3];
            let part = vec![rank as u32; counts[rank]];
            let mut expected = vec![mine.clone(); 4];
            let [sum, reduced, sent, _] = &mut expected[..] else {
                unreachable!()
            };
            world.call().all_reduce(sum, ReduceOp::Sum).unwrap();
            world.call().reduce(reduced, ReduceOp::Max, 1).unwrap();
            world.call().broadcast(sent, 2).unwrap();
            let mut scattered = [
                vec![0; 2],
                vec![0; 18],
                vec![0; 6],
                vec![0; 18],
                vec![0; 2],
                vec![0; 6],
            ];
            let [a, b, c, d, e, f] = &mut scattered;
            world
                .call()
                .reduce_scatter(&mine, a, ReduceOp::Sum)
                .unwrap();
            world.call().all_gather(&mine, b).unwrap();
            world.call().all_gather_v(&part, c, &counts).unwrap();
            world.call().gather(&mine, d, 0).unwrap();
            world.call().scatter(&mine, e, 1).unwrap();
            world.call().all_to_all(&mine, f).unwrap();

            type Start<'a> = Box<dyn Fn() -> Pending<u32> + 'a>;
            let own = || mine.clone();
            let zeros = |length: usize| vec![0u32; length];
            let starts: Vec<(Start<'_>, &[u32])> = vec![
                (
                    Box::new(|| {
                        world
                            .named("1")
                            .start_all_reduce(own(), ReduceOp::Sum)
                            .unwrap()
                    }),
                    &expected[0],
                ),
                (
                    Box::new(|| {
                        world
                            .named("2")
                            .start_reduce(own(), ReduceOp::Max, 1)
                            .unwrap()
                    }),
                    &expected[1],
                ),
                (
                    Box::new(|| world.named("3").start_broadcast(own(), 2).unwrap()),
                    &expected[2],
                ),
                (
                    Box::new(|| {
                        world
                            .named("4")
                            .start_reduce_scatter(own(), zeros(2), ReduceOp::Sum)
                            .unwrap()
                    }),
                    &scattered[0],
                ),
                (
                    Box::new(|| world.named("5").start_all_gather(own(), zeros(18)).unwrap()),
                    &scattered[1],
                ),
                (
                    Box::new(|| {
                        world
                            .named("6")
                            .start_all_gather_v(part.clone(), zeros(6), &counts)
                            .unwrap()
                    }),
                    &scattered[2],
                ),
                (
                    Box::new(|| world.named("7").start_gather(own(), zeros(18), 0).unwrap()),
                    &scattered[3],
                ),
                (
                    Box::new(|| world.named("8").start_scatter(own(), zeros(2), 1).unwrap()),
                    &scattered[4],
                ),
                (
                    Box::new(|| world.named("9").start_all_to_all(own(), zeros(6)).unwrap()),
                    &scattered[5],
                ),
            ];
            let barrier = world.named("0").start_barrier().unwrap();
            let list = vec![own(), own()];
            let list = world
                .named("10")
                .start_all_reduce_list(list, ReduceOp::Sum)
                .unwrap();
            let mut pending: Vec<_> = (0..starts.len())
                .map(|i| (i + 4 * rank) % starts.len())
                .map(|index| (index, (starts[index].0)()))
                .collect();
            pending.sort_by_key(|(index, _)| (index * 5) % starts.len());
            for (index, one) in pending {
                assert_eq!(one.wait().unwrap(), starts[index].1, "{index}");
            }
            assert_eq!(
                list.wait().unwrap(),
                [expected[0].clone(), expected[0].clone()]
            );
            assert!(barrier.wait().unwrap().is_empty());
            assert!(
                world.call().start_all_gather(own(), zeros(7)).is_err(),
                "a wrong length"
            );
        });
    }
}
