//! What the kernel offers, tried the way the engine uses it.

#![expect(unsafe_code, reason = "system calls that no library offers")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::channel::examination::{Features, Limits};

/// The shared memory of some eight ranks. Only two pages of it are used.
const SHARED: u64 = 64 << 20;

const MEMBARRIER_QUERY: libc::c_int = 0;
const MEMBARRIER_GLOBAL_EXPEDITED: libc::c_long = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: libc::c_long = 1 << 2;

pub(super) fn features() -> Features {
    Features {
        membarrier: membarrier(),
        pidfd: pidfd_open(getpid(), PidfdFlags::empty())
            .map(drop)
            .map_err(|error| io::Error::from(error).to_string()),
        futex: futex(),
    }
}

fn membarrier() -> Result<(), String> {
    // SAFETY: membarrier takes no pointers.
    let offered = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_QUERY, 0, 0) };
    let wanted = MEMBARRIER_GLOBAL_EXPEDITED | MEMBARRIER_REGISTER_GLOBAL_EXPEDITED;
    if offered < 0 {
        Err(io::Error::last_os_error().to_string())
    } else if offered & wanted == wanted {
        Ok(())
    } else {
        Err("the kernel offers other kinds only".to_owned())
    }
}

fn futex() -> Result<(), String> {
    let word = AtomicU32::new(0);
    // SAFETY: the word outlives the call, which only looks whether anybody waits for it.
    let woken = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
    if woken < 0 {
        Err(io::Error::last_os_error().to_string())
    } else {
        Ok(())
    }
}

/// Makes a file in memory, maps it, and looks through the file at what the mapping wrote.
pub(super) fn shared_memory(limits: &Limits) -> Result<u64, String> {
    // The kernel would kill this process for trying.
    if limits.file_size.is_some_and(|limit| limit < SHARED) {
        return Err("files may not be that large (ulimit -f)".to_owned());
    }
    try_shared_memory().map_err(|error| error.to_string())?;
    Ok(SHARED)
}

fn try_shared_memory() -> io::Result<()> {
    let file = File::from(memfd_create("carole-doctor", MemfdFlags::CLOEXEC)?);
    ftruncate(&file, SHARED)?;
    let bytes = SHARED as usize;
    // SAFETY: a fresh mapping of our own file at an address that the kernel chooses; both bytes
    // that are written lie in it, and nobody else knows it.
    unsafe {
        let mapping = libc::mmap(
            std::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let first = mapping.cast::<u8>();
        first.write_volatile(7);
        first.add(bytes - 1).write_volatile(9);
        libc::munmap(mapping, bytes);
    }
    let mut ends = [[0], [0]];
    file.read_exact_at(&mut ends[0], 0)?;
    file.read_exact_at(&mut ends[1], SHARED - 1)?;
    if ends == [[7], [9]] {
        Ok(())
    } else {
        Err(io::Error::other("what is written there does not stay"))
    }
}
