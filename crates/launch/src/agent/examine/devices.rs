//! GPUs and their libraries, without loading anything.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::{host, read};
use crate::channel::examination::Devices;

/// NVIDIA's number on the bus.
const NVIDIA: &str = "0x10de";
/// Displays and 3D controllers, by the first byte of their class.
const DISPLAY: &str = "0x03";

pub(super) fn devices() -> Devices {
    Devices {
        gpus: host::gpus(),
        on_bus: on_bus(Path::new("/sys/bus/pci/devices")),
        cuda: is_known("libcuda.so.1"),
        nccl: is_known("libnccl.so.2"),
        infiniband: fs::read_dir("/sys/class/infiniband").is_ok_and(|mut all| all.next().is_some()),
    }
}

fn on_bus(devices: &Path) -> usize {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let file = |name| read(entry.path().join(name));
            file("vendor").trim() == NVIDIA && file("class").starts_with(DISPLAY)
        })
        .count()
}

/// Whether the loader would find a library: in its variable, in its cache, or in the usual folders.
fn is_known(library: &str) -> bool {
    let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
    let named = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let architecture = env::consts::ARCH;
    let usual = [
        "/lib64".to_owned(),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
        format!("/usr/lib/{architecture}-linux-gnu"),
        "/usr/local/cuda/lib64".to_owned(),
    ];
    memmem::find(&cache, format!("{library}\0").as_bytes()).is_some()
        || env::split_paths(&named)
            .chain(usual.map(PathBuf::from))
            .any(|folder| !folder.as_os_str().is_empty() && folder.join(library).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_nowhere_is_not_known() {
        assert!(!is_known("libcarole-nowhere.so.9"));
    }
}
