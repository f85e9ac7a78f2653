//! The few system calls that the standard library does not offer, each in a safe wrapper.
//!
//! Shared memory is `memfd` only and is handed over local sockets, so that nothing has a name and
//! nothing stays behind. What may be read or written in a mapping is decided by the callers
//! (`region`, `arena`), not here.

#![expect(
    unsafe_code,
    reason = "this module is the border to the operating system"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A new anonymous file in memory of `bytes` bytes, closed on exec.
pub(crate) fn memfd(name: &std::ffi::CStr, bytes: usize) -> io::Result<OwnedFd> {
    // SAFETY: the name is a valid C string; the result is checked before it becomes an OwnedFd.
    let fd = unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC).into())? as RawFd;
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: plain call on a descriptor that we own.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) }.into())?;
    Ok(fd)
}

/// The length of the file behind `fd`.
pub(crate) fn file_length(fd: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: `stat` is plain data for which all zeroes is valid, and fstat fills it.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd.as_raw_fd(), &raw mut stat).into())?;
        Ok(stat.st_size as usize)
    }
}

/// A mapping that is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    pointer: *mut u8,
    bytes: usize,
    /// Device and number of the file.
    #[cfg(carole_one_mapping)]
    file: Option<(u64, u64)>,
}

// SAFETY: a mapping is plain memory; who may touch which bytes when is the business of its users.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps all of `fd` shared and writable, its pages present at once when `populate` is set.
    pub(crate) fn shared(fd: BorrowedFd<'_>, bytes: usize, populate: bool) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | if populate { libc::MAP_POPULATE } else { 0 };
        Self::map(bytes, flags, fd.as_raw_fd())
    }

    /// Anonymous memory shared by the threads of this process.
    #[cfg(test)]
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
    }

    fn map(bytes: usize, flags: libc::c_int, fd: RawFd) -> io::Result<Self> {
        let bytes = bytes.max(1);
        // SAFETY: a fresh mapping at an address that the kernel chooses touches no existing memory.
        let pointer = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if pointer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            pointer: pointer.cast(),
            bytes,
            #[cfg(carole_one_mapping)]
            file: file_identity(fd),
        })
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and is unmapped once.
        unsafe { libc::munmap(self.pointer.cast(), self.bytes) };
    }
}

#[cfg(carole_one_mapping)]
fn file_identity(fd: RawFd) -> Option<(u64, u64)> {
    // SAFETY: `stat` is plain data for which all zeroes is valid, and fstat fills it or fails.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
    }
}

/// This process's first mapping of the same file. For the thread sanitizer: it takes one memory at
/// two addresses for two, and sees neither the races nor the order between ranks that are threads.
#[cfg(carole_one_mapping)]
pub(crate) fn the_one_mapping(mapping: std::sync::Arc<Mapping>) -> std::sync::Arc<Mapping> {
    use std::sync::{Arc, Mutex, PoisonError, Weak};
    static KNOWN: Mutex<Vec<Weak<Mapping>>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|mapping| mapping.strong_count() > 0);
    let same = |known: &Arc<Mapping>| known.file.is_some() && known.file == mapping.file;
    if let Some(first) = known.iter().filter_map(Weak::upgrade).find(same) {
        return first;
    }
    known.push(Arc::downgrade(&mapping));
    mapping
}

/// Sleeps while `word` holds `expected`, at most `limit`. Spurious returns are allowed.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let timeout = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    };
    // SAFETY: the word outlives the call; every outcome, errors included, is a return.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
            std::ptr::null::<u32>(),
            0,
        );
    }
}

/// Wakes everyone who sleeps on `word`, in whichever process.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

const MEMBARRIER_GLOBAL_EXPEDITED: libc::c_int = 1 << 1;
const MEMBARRIER_REGISTER_GLOBAL_EXPEDITED: libc::c_int = 1 << 2;

fn membarrier(command: libc::c_int) -> io::Result<()> {
    if cfg!(miri) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: membarrier takes no pointers.
    check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }).map(drop)
}

/// Registers this process for [`heavy_fence`]; false where the kernel does not offer it.
pub(crate) fn register_heavy_fence() -> bool {
    membarrier(MEMBARRIER_REGISTER_GLOBAL_EXPEDITED).is_ok()
}

/// A full fence on every core that runs a registered process, so that those need none.
pub(crate) fn heavy_fence() -> bool {
    membarrier(MEMBARRIER_GLOBAL_EXPEDITED).is_ok()
}

/// Gives the core to another thread that is ready to run on it.
pub(crate) fn yield_core() {
    // SAFETY: takes no arguments and always succeeds on Linux.
    unsafe { libc::sched_yield() };
}

/// How many cores this process may run on.
pub(crate) fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A counter that wakes pollers.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: the result is checked before it becomes an OwnedFd.
    unsafe {
        let fd = check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).into())?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Adds one to an eventfd; a full counter is as good as a ring.
pub(crate) fn eventfd_ring(fd: BorrowedFd<'_>) {
    let one = 1u64;
    // SAFETY: eight bytes of a local variable.
    unsafe { libc::write(fd.as_raw_fd(), (&raw const one).cast(), 8) };
}

/// Empties an eventfd.
pub(crate) fn eventfd_clear(fd: BorrowedFd<'_>) {
    let mut count = 0u64;
    // SAFETY: eight bytes into a local variable.
    unsafe { libc::read(fd.as_raw_fd(), (&raw mut count).cast(), 8) };
}

/// A descriptor that becomes readable when the process at the other end of a local socket ends.
///
/// Asks the socket for the pidfd (correct across pid namespaces) and falls back to the pid in the
/// socket's credentials on kernels before 6.5.
pub(crate) fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut fd: RawFd = -1;
    let mut length = size_of::<RawFd>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `fd`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut length,
        )
    };
    if result == 0 && fd >= 0 {
        // SAFETY: the kernel just gave us this descriptor.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    pidfd_open(peer_pid(socket)?)
}

/// The process at the other end of a local socket.
pub(crate) fn peer_pid(socket: BorrowedFd<'_>) -> io::Result<i32> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `credentials`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    check(result.into())?;
    Ok(credentials.pid)
}

fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers; the result is checked before it becomes an OwnedFd.
    unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// Waits until one of `fds` is ready or `limit` passes; returns how many are.
pub(crate) fn poll(fds: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<usize> {
    let timeout = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the slice and the optional timespec outlive the call.
    let ready = unsafe {
        libc::ppoll(
            fds.as_mut_ptr(),
            fds.len() as libc::nfds_t,
            timeout,
            std::ptr::null(),
        )
    };
    match check(ready.into()) {
        Ok(ready) => Ok(ready as usize),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Sends one byte and the descriptors over a connected local socket.
pub(crate) fn send_descriptors(socket: BorrowedFd<'_>, fds: &[RawFd]) -> io::Result<()> {
    assert!(
        fds.len() <= MAX_DESCRIPTORS,
        "at most {MAX_DESCRIPTORS} descriptors a message"
    );
    let mut byte = [b'f'];
    let mut control = ControlBuffer::new();
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // SAFETY: the message points at locals that outlive the call; the control buffer is large
    // enough for MAX_DESCRIPTORS and aligned for cmsghdr.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of_val(fds) as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of_val(fds) as u32) as _;
        std::ptr::copy_nonoverlapping(fds.as_ptr(), libc::CMSG_DATA(header).cast(), fds.len());
        let sent = libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL);
        check(sent as libc::c_long).map(drop)
    }
}

/// Receives one byte and up to [`MAX_DESCRIPTORS`] descriptors from a connected local socket.
pub(crate) fn receive_descriptors(socket: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut byte = [0u8];
    let mut control = ControlBuffer::new();
    let mut part = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    let mut received = Vec::new();
    // SAFETY: as in `send_descriptors`; each descriptor the kernel wrote is taken exactly once.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control.0) as _;
        let count = check(libc::recvmsg(
            socket.as_raw_fd(),
            &raw mut message,
            libc::MSG_CMSG_CLOEXEC,
        ) as libc::c_long)?;
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data: *const RawFd = libc::CMSG_DATA(header).cast();
                for index in 0..bytes / size_of::<RawFd>() {
                    received.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(received)
}

/// The most descriptors that one message carries.
pub(crate) const MAX_DESCRIPTORS: usize = 8;

#[repr(align(8))]
struct ControlBuffer([u8; 128]);

impl ControlBuffer {
    fn new() -> Self {
        Self([0; 128])
    }
}

/// What makes two processes share a host: the kernel's boot id and the network namespace.
pub(crate) fn machine_identity() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/net")?;
    Ok(format!("{}/{}", boot.trim(), namespace.to_string_lossy()))
}

/// Cycles of the time-stamp counter on x86, nanoseconds of the monotonic clock elsewhere (and
/// under Miri).
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86_64 processor has the instruction.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(any(not(target_arch = "x86_64"), miri))]
    {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel fills the local variable.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

/// The kernel's number of this thread.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: a plain call without arguments that cannot fail.
    let thread = unsafe { libc::gettid() };
    thread.cast_unsigned()
}

/// Writes what fits without blocking and without a signal when the other end is gone.
pub(crate) fn send(fd: BorrowedFd<'_>, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    loop {
        // SAFETY: IoSlice has the layout of iovec; the message and its parts outlive the call.
        let sent = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = parts.as_ptr().cast_mut().cast();
            message.msg_iovlen = parts.len() as _;
            libc::sendmsg(
                fd.as_raw_fd(),
                &raw const message,
                libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
            )
        };
        match check(sent as libc::c_long) {
            Ok(count) => return Ok(count as usize),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads what there is without blocking, into raw memory and then into `rest`.
///
/// `None` when there is nothing now; zero at the end of the stream.
///
/// # Safety
/// `pointer` must be valid for writes of `bytes` bytes.
pub(crate) unsafe fn receive(
    fd: BorrowedFd<'_>,
    pointer: *mut u8,
    bytes: usize,
    rest: &mut [u8],
) -> io::Result<Option<usize>> {
    let mut parts = [
        libc::iovec {
            iov_base: pointer.cast(),
            iov_len: bytes,
        },
        libc::iovec {
            iov_base: rest.as_mut_ptr().cast(),
            iov_len: rest.len(),
        },
    ];
    let skip = usize::from(bytes == 0);
    loop {
        // SAFETY: both parts are valid for writes, by contract and by borrow.
        let received = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = parts[skip..].as_mut_ptr();
            message.msg_iovlen = (2 - skip) as _;
            libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
        };
        match check(received as libc::c_long) {
            Ok(count) => return Ok(Some(count as usize)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Bytes that were sent on a TCP socket and that the other side has not confirmed.
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the kernel fills the local variable.
    let outcome = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome == 0 { bytes as usize } else { 0 }
}

/// Gives a range of a memory file back to the system; it reads as zeroes afterwards.
pub(crate) fn punch_hole(fd: BorrowedFd<'_>, offset: usize, bytes: usize) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: plain call on a borrowed descriptor; a failure only keeps the memory.
    unsafe {
        libc::fallocate(
            fd.as_raw_fd(),
            mode,
            offset as libc::off_t,
            bytes as libc::off_t,
        )
    };
}

/// Bytes of physical memory.
pub(crate) fn physical_memory() -> usize {
    // SAFETY: takes no pointers.
    let (pages, size) = unsafe {
        (
            libc::sysconf(libc::_SC_PHYS_PAGES),
            libc::sysconf(libc::_SC_PAGESIZE),
        )
    };
    usize::try_from(pages)
        .unwrap_or(0)
        .saturating_mul(usize::try_from(size).unwrap_or(4096))
}

/// The core that this thread runs on just now.
#[inline]
pub(crate) fn current_core() -> u32 {
    // SAFETY: a plain call without arguments.
    let core = unsafe { libc::sched_getcpu() };
    core.cast_unsigned()
}

/// The cores that this thread may use, in ascending order; none where the kernel does not say.
pub(crate) fn allowed_cores() -> Vec<u32> {
    let set = affinity();
    // SAFETY: the index is within the set.
    (0..libc::CPU_SETSIZE.cast_unsigned())
        .filter(|core| set.is_some_and(|set| unsafe { libc::CPU_ISSET(*core as usize, &set) }))
        .collect()
}

fn affinity() -> Option<libc::cpu_set_t> {
    // SAFETY: a set is plain bits, and the kernel writes no more than its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        check(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set).into())
            .ok()
            .map(|_| set)
    }
}

/// Goes to another core that this thread may use, without staying bound to it; whether it went.
pub(crate) fn move_to_core(core: u32) -> bool {
    let Some(allowed) = affinity() else {
        return false;
    };
    // SAFETY: the index is within the set, and the kernel reads no more than a set's size.
    unsafe {
        if core >= libc::CPU_SETSIZE.cast_unsigned() || !libc::CPU_ISSET(core as usize, &allowed) {
            return false;
        }
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core as usize, &mut only);
        let moved = libc::sched_setaffinity(0, size_of_val(&only), &raw const only) == 0;
        libc::sched_setaffinity(0, size_of_val(&allowed), &raw const allowed);
        moved
    }
}

/// How often this process has been forked off since the count began: changes in a forked child,
/// without a system call to find out.
pub(crate) fn forks() -> u32 {
    use std::sync::Once;
    use std::sync::atomic::Ordering;
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static WATCH: Once = Once::new();
    extern "C" fn in_child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCH.call_once(|| {
        // SAFETY: the handler only touches an atomic, as a handler in a forked child may.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

/// Reads what there is without blocking; `None` when there is nothing now, zero at the end.
pub(crate) fn receive_into(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: no raw memory is involved; the buffer is borrowed.
    unsafe { receive(fd, std::ptr::null_mut(), 0, buffer) }
}
