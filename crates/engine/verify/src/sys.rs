//! In the place of the engine's `sys`: modelled shared memory, and a futex made of a lock and a
//! condition. It has no time limit, so that a lost bell is a deadlock, which loom reports.

use std::cell::{RefCell, UnsafeCell};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use loom::sync::{Condvar, Mutex};

use crate::local::board::Header;
use crate::region::{Area, AtomicU32, BLOCK, PAYLOAD};

/// What the ranks of a model share.
pub(crate) struct Mapping {
    pub(crate) header: Header,
    pub(crate) areas: Vec<Area>,
    payload: Rc<Payload>,
}

// SAFETY: loom runs all threads of a model on one thread of the system, one at a time.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes, and who may touch them.
struct Payload {
    bytes: UnsafeCell<Box<[u8]>>,
    blocks: Vec<loom::cell::UnsafeCell<()>>,
}

/// Sleepers on one word.
#[derive(Default)]
struct Futex {
    lock: Mutex<()>,
    rung: Condvar,
}

#[derive(Default)]
struct Model {
    payload: Option<Rc<Payload>>,
    futexes: Vec<(usize, Rc<Futex>)>,
}

thread_local! {
    /// The model that runs: what kernels and futexes are told by address only.
    static MODEL: RefCell<Model> = RefCell::default();
}

impl Mapping {
    /// Begins a model of so many ranks.
    pub(crate) fn begin(ranks: usize) -> Arc<Self> {
        let payload = Rc::new(Payload {
            bytes: UnsafeCell::new(vec![0; ranks * PAYLOAD].into()),
            blocks: (0..ranks * PAYLOAD / BLOCK)
                .map(|_| loom::cell::UnsafeCell::new(()))
                .collect(),
        });
        MODEL.set(Model {
            payload: Some(Rc::clone(&payload)),
            futexes: Vec::new(),
        });
        Arc::new(Self {
            header: Header::default(),
            areas: (0..ranks).map(|_| Area::new(ranks)).collect(),
            payload,
        })
    }

    pub(crate) fn payload(&self, rank: usize, offset: usize) -> *mut u8 {
        // SAFETY: only the address is taken; the box is never replaced.
        let begin = unsafe { (*self.payload.bytes.get()).as_mut_ptr() };
        begin.wrapping_add(rank * PAYLOAD + offset)
    }

    /// Arenas are mappings, too; models have none.
    pub(crate) fn pointer(&self) -> *mut u8 {
        unreachable!("no arenas");
    }

    pub(crate) fn bytes(&self) -> usize {
        0
    }
}

/// Tells loom of an access to payload; other memory is a thread's own.
pub(crate) fn touch(pointer: *const u8, bytes: usize, write: bool) {
    assert!(!pointer.is_null(), "a place for the payload");
    let payload = MODEL
        .with_borrow(|model| model.payload.clone())
        .expect("a model runs");
    // SAFETY: only address and length are taken.
    let (begin, length) = unsafe {
        let all = &*payload.bytes.get();
        (all.as_ptr().addr(), all.len())
    };
    let Some(offset) = pointer
        .addr()
        .checked_sub(begin)
        .filter(|offset| *offset < length)
    else {
        return;
    };
    assert!(offset + bytes <= length, "within the payload");
    for block in offset / BLOCK..(offset + bytes).div_ceil(BLOCK) {
        if write {
            payload.blocks[block].with_mut(|_| ());
        } else {
            payload.blocks[block].with(|_| ());
        }
    }
}

fn futex(word: &AtomicU32) -> Rc<Futex> {
    let address = std::ptr::from_ref(word).addr();
    MODEL.with_borrow_mut(|model| {
        let known = model.futexes.iter().find(|(known, _)| *known == address);
        known.map(|(_, futex)| Rc::clone(futex)).unwrap_or_else(|| {
            let futex = Rc::new(Futex::default());
            model.futexes.push((address, Rc::clone(&futex)));
            futex
        })
    })
}

pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _limit: Duration) {
    let futex = futex(word);
    let sleeping = futex.lock.lock().expect("not poisoned");
    if word.load(Ordering::Relaxed) == expected {
        drop(futex.rung.wait(sleeping));
    }
}

pub(crate) fn futex_wake_all(word: &AtomicU32) {
    let futex = futex(word);
    let _sleeping = futex.lock.lock().expect("not poisoned");
    futex.rung.notify_all();
}

pub(crate) fn register_heavy_fence() -> bool {
    false
}

pub(crate) fn heavy_fence() {
    unreachable!("there is no asymmetric fence in a model");
}

pub(crate) fn available_cores() -> usize {
    1
}

pub(crate) fn eventfd_ring(_fd: BorrowedFd<'_>) {
    unreachable!("no engine thread sleeps");
}
