//! What anybody may send to a listening peer.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    carole_engine::fuzzing::stranger(bytes);
});
