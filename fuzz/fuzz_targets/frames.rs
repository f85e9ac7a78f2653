//! What a member may send after the handshake.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    carole_engine::fuzzing::frames(bytes);
});
