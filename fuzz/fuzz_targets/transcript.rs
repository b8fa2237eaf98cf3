//! libFuzzer on the target `transcript`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("transcript", data));
