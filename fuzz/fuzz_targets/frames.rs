//! What a member may send after the handshake.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte tells whether the peer has come to the operation.
    match bytes.split_first() {
        Some((first, rest)) if first % 2 == 1 => carole_engine::fuzzing::frames_in_flight(rest),
        Some((_, rest)) => carole_engine::fuzzing::frames(rest),
        None => None,
    };
});
