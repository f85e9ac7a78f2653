//! What somebody may answer who listens where a peer is expected.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    carole_engine::fuzzing::impostor(bytes);
});
