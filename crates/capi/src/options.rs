//! Structs that can grow: each begins with its size as the caller's header knows it.

#![expect(
    unsafe_code,
    reason = "structs of a size that the caller states are copied"
)]

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use carole_engine::compress::Codec;
use carole_worker::Settings;
use carole_worker::settings::{EXPECTED_SECONDS, EXPECTED_STREAMS, seconds, streams, table};

use crate::codes::{
    carole_compression_number, carole_dtype_number, carole_tls_number, carole_transport_number,
    compression, tls, transport,
};
use crate::group::carole_group;
use crate::memory::{reference, text};
use crate::outcome::Failure;

/// How a session behaves. Begin with CAROLE_CONFIG_INIT; a field that is zero has the value of its
/// environment variable, or else its default.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct carole_config {
    /// sizeof(carole_config)
    pub size: usize,
    /// How ranks of one host reach one another; CAROLE_TRANSPORT.
    pub transport: carole_transport_number,
    /// Seconds after which an operation, or joining, fails; CAROLE_TIMEOUT, default 1800.
    pub timeout_seconds: f64,
    /// Seconds after which a wait logs whom it waits for; CAROLE_STALL, default 10.
    pub stall_seconds: f64,
    /// Seconds of silence after which a peer on another host is lost; CAROLE_HEARTBEAT, default 5.
    pub heartbeat_seconds: f64,
    /// Whether data between hosts is encrypted; CAROLE_TLS, default off.
    pub tls: carole_tls_number,
    /// TCP connections between two ranks on different hosts, 1 to 16; CAROLE_STREAMS, default 1.
    pub streams: c_int,
    /// The path of a file with an algorithm table in JSON; CAROLE_TABLE. The first rank's table is
    /// used by all.
    pub table: *const c_char,
    /// The path of a file for a timeline of the whole session, which carole_finalize writes; `{rank}`
    /// in it becomes the rank, which otherwise goes before the extension. CAROLE_TIMELINE.
    pub timeline: *const c_char,
}

/// What a call may be told beside its arguments. Begin with CAROLE_OPTIONS_INIT; NULL in place of
/// the struct, and a field that is zero, mean the default. It is not used after the call returns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct carole_options {
    /// sizeof(carole_options)
    pub size: usize,
    /// The operation's name, UTF-8. Operations are matched by group and name, so ranks may call
    /// them in any order and from several threads. NULL: matched by the order in which the group's
    /// unnamed operations are called.
    pub name: *const c_char,
    /// The ranks that take part; NULL: all. Roots, counts and parts are by rank in the group.
    pub group: *const carole_group,
    /// Multiplies the values before they are combined; 0 means 1. Floating-point reductions only.
    pub prescale: f64,
    /// Multiplies the result; 0 means 1. Floating-point reductions only.
    pub postscale: f64,
    /// Seconds after which this operation fails; 0: as the session says.
    pub timeout_seconds: f64,
    /// How values travel between hosts; the same on all ranks. For carole_all_reduce and
    /// carole_all_reduce_list of CAROLE_F32, CAROLE_SUM or CAROLE_AVERAGE.
    pub compression: carole_compression_number,
    /// The topology along which values go, the same on all ranks: "star", "multi-star", "ring",
    /// "clique", "tree", "binary-tree", "binary-tree-star", "multi-binary-tree-star" or "auto"; NULL:
    /// what is fastest. For carole_all_reduce, carole_all_reduce_list and carole_broadcast, where the
    /// topology's root must be the call's.
    pub topology: *const c_char,
    /// The same as a tree: for each rank of the group its parent, the root being its own. NULL: none.
    pub parents: *const c_int,
}

/// One tensor of a list.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct carole_tensor {
    /// What this rank contributes.
    pub send: *const c_void,
    /// Where the result goes: `send` itself, or memory apart from it.
    pub recv: *mut c_void,
    /// Elements.
    pub count: usize,
    /// Their type.
    pub dtype: carole_dtype_number,
}

/// A struct of numbers and pointers for which all zeros are a value, and whose first field is its
/// size.
///
/// # Safety
/// What the line above says must hold.
unsafe trait Sized0: Copy {
    const NAME: &str;
    /// The size it had in the first version of the interface.
    const FIRST: usize;
}

// SAFETY: a size, numbers, floats and pointers.
unsafe impl Sized0 for carole_config {
    const NAME: &str = "carole_config";
    const FIRST: usize = 40;
}

// SAFETY: a size, a number, floats and pointers.
unsafe impl Sized0 for carole_options {
    const NAME: &str = "carole_options";
    const FIRST: usize = 48;
}

/// A size above this is a struct that was not initialised.
const LARGEST: usize = 4096;

/// Copies what the caller's version of the struct holds; fields it does not know are zero.
///
/// # Safety
/// The pointer is NULL, or points to a struct of the size that its first field tells.
#[inline]
unsafe fn read<T: Sized0>(pointer: *const T) -> Result<T, Failure> {
    // SAFETY: at least its first field is there.
    let size = *unsafe { reference(pointer.cast::<usize>(), T::NAME) }?;
    let own = size_of::<T>();
    let wrong = |why: &str| {
        let name = T::NAME;
        Failure::invalid(format!(
            "{name}.size is {size}, {why}: set it to sizeof({name})"
        ))
    };
    if size < T::FIRST {
        return Err(wrong("less than the struct ever had"));
    }
    if size > LARGEST {
        return Err(wrong("more than it will ever have"));
    }
    if !size.is_multiple_of(align_of::<T>()) {
        return Err(wrong("which cuts a field in two"));
    }
    // SAFETY: the caller's struct has `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    if bytes[own.min(size)..].iter().any(|byte| *byte != 0) {
        let name = T::NAME;
        return Err(Failure::invalid(format!(
            "{name} sets a field that this version of libcarole does not know"
        )));
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: both are valid for the shorter of the two lengths; all zeros are a value of `T`, and
    // so are numbers and pointers that the caller wrote.
    unsafe {
        std::ptr::copy_nonoverlapping(
            pointer.cast(),
            value.as_mut_ptr().cast::<u8>(),
            own.min(size),
        );
        Ok(value.assume_init())
    }
}

fn limit(number: f64, field: &str) -> Result<Option<std::time::Duration>, Failure> {
    if number == 0.0 {
        return Ok(None);
    }
    match seconds(number) {
        Some(duration) => Ok(Some(duration)),
        None => Err(Failure::invalid(format!(
            "{field} is {number}: expected {EXPECTED_SECONDS}"
        ))),
    }
}

/// The settings in a configuration; none when it is NULL.
///
/// # Safety
/// The pointer is NULL, or points to a struct of the size that its first field tells.
pub(crate) unsafe fn settings(config: *const carole_config) -> Result<Settings, Failure> {
    if config.is_null() {
        return Ok(Settings::default());
    }
    // SAFETY: the caller's promise.
    let config = unsafe { read(config) }?;
    Ok(Settings {
        transport: transport(config.transport)?,
        timeout: limit(config.timeout_seconds, "carole_config.timeout_seconds")?,
        stall: limit(config.stall_seconds, "carole_config.stall_seconds")?,
        heartbeat: limit(config.heartbeat_seconds, "carole_config.heartbeat_seconds")?,
        streams: match config.streams {
            0 => None,
            number => Some(
                usize::try_from(number)
                    .ok()
                    .and_then(streams)
                    .ok_or_else(|| {
                        let field = "carole_config.streams";
                        Failure::invalid(format!(
                            "{field} is {number}: expected {EXPECTED_STREAMS}"
                        ))
                    })?,
            ),
        },
        tls: tls(config.tls)?,
        // It is the launcher that knows which are free.
        ports: None,
        // SAFETY: the caller's promise.
        table: match unsafe { path(config.table, "carole_config.table") }? {
            None => None,
            Some(path) => Some(table(path).map_err(|problem| {
                Failure::invalid(format!(
                    "carole_config.table is {}: {problem}",
                    path.display()
                ))
            })?),
        },
        // SAFETY: the caller's promise.
        timeline: unsafe { path(config.timeline, "carole_config.timeline") }?.map(PathBuf::from),
    })
}

/// A file that may be named.
///
/// # Safety
/// The pointer is NULL, or points to a text that ends with a zero and is not written for `'a`.
unsafe fn path<'a>(pointer: *const c_char, field: &str) -> Result<Option<&'a Path>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    match unsafe { text(pointer, field) }? {
        "" => Err(Failure::invalid(format!("{field} is empty"))),
        path => Ok(Some(Path::new(path))),
    }
}

/// A call's options with their defaults filled in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) name: *const c_char,
    pub(crate) group: *const carole_group,
    pub(crate) scale: Option<(f64, f64)>,
    pub(crate) timeout: Option<std::time::Duration>,
    pub(crate) codec: Codec,
    pub(crate) topology: *const c_char,
    pub(crate) parents: *const c_int,
}

/// A call's options; the defaults when the pointer is NULL.
///
/// # Safety
/// The pointer is NULL, or points to a struct of the size that its first field tells.
#[inline]
pub(crate) unsafe fn options(options: *const carole_options) -> Result<Options, Failure> {
    if options.is_null() {
        return Ok(Options {
            name: std::ptr::null(),
            group: std::ptr::null(),
            scale: None,
            timeout: None,
            codec: Codec::None,
            topology: std::ptr::null(),
            parents: std::ptr::null(),
        });
    }
    // SAFETY: the caller's promise.
    let options = unsafe { read(options) }?;
    let one = |scale: f64| if scale == 0.0 { 1.0 } else { scale };
    let scale = (one(options.prescale), one(options.postscale));
    Ok(Options {
        name: options.name,
        group: options.group,
        scale: (scale != (1.0, 1.0)).then_some(scale),
        timeout: limit(options.timeout_seconds, "carole_options.timeout_seconds")?,
        codec: compression(options.compression)?,
        topology: options.topology,
        parents: options.parents,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> carole_options {
        carole_options {
            size: size_of::<carole_options>(),
            name: std::ptr::null(),
            group: std::ptr::null(),
            prescale: 0.0,
            postscale: 0.0,
            timeout_seconds: 0.0,
            compression: 0,
            topology: std::ptr::null(),
            parents: std::ptr::null(),
        }
    }

    /// Options as a later version of the header would have them.
    #[repr(C)]
    struct Later {
        known: carole_options,
        further: u64,
    }

    fn later(further: u64) -> Result<Options, Failure> {
        let size = size_of::<Later>();
        let later = Later {
            known: carole_options { size, ..plain() },
            further,
        };
        // SAFETY: the struct has the size that its first field tells.
        unsafe { options((&raw const later).cast()) }
    }

    #[test]
    fn a_larger_struct_is_taken_as_long_as_the_rest_is_zero() {
        assert!(later(0).is_ok());
        assert!(later(1).is_err());
    }

    #[test]
    fn a_struct_without_its_size_is_refused() {
        let (first, own) = (carole_options::FIRST, size_of::<carole_options>());
        for size in [0, 8, first - 8, first + 4, own - 1, usize::MAX] {
            let wrong = carole_options { size, ..plain() };
            // SAFETY: no more than the first field is read when it is refused.
            assert!(unsafe { options(&raw const wrong) }.is_err(), "{size}");
        }
    }

    #[test]
    fn zero_means_the_default_and_nonsense_is_refused() {
        // SAFETY: the struct has the size that its first field tells.
        let read = |options: carole_options| unsafe { super::options(&raw const options) };
        let scaled = read(carole_options {
            postscale: 0.5,
            ..plain()
        })
        .unwrap();
        assert_eq!(scaled.scale, Some((1.0, 0.5)));
        assert_eq!(read(plain()).unwrap().scale, None);
        for timeout_seconds in [-1.0, f64::NAN, f64::INFINITY, 1e12] {
            assert!(
                read(carole_options {
                    timeout_seconds,
                    ..plain()
                })
                .is_err()
            );
        }
    }

    #[test]
    fn a_struct_of_the_first_version_is_taken_and_the_rest_is_zero() {
        let first = carole_options {
            size: carole_options::FIRST,
            timeout_seconds: 2.0,
            // Behind what the first version knew: not looked at.
            compression: 77,
            ..plain()
        };
        // SAFETY: the struct is larger than its first field tells.
        let options = unsafe { options(&raw const first) }.unwrap();
        assert_eq!(options.timeout, Some(std::time::Duration::from_secs(2)));
        assert_eq!(options.codec, Codec::None);
    }

    #[test]
    fn the_first_sizes_are_those_of_the_first_version() {
        let config = std::mem::offset_of!(carole_config, tls);
        assert_eq!(config, carole_config::FIRST);
        let options = std::mem::offset_of!(carole_options, compression);
        assert_eq!(options, carole_options::FIRST);
    }

    #[test]
    fn no_struct_ends_with_bytes_that_belong_to_no_field() {
        // A later field there would be read from callers that never wrote it.
        let config = std::mem::offset_of!(carole_config, timeline) + size_of::<usize>();
        assert_eq!(config, size_of::<carole_config>());
        let options = std::mem::offset_of!(carole_options, parents) + size_of::<usize>();
        assert_eq!(options, size_of::<carole_options>());
    }
}
