//! libFuzzer on the target `javascript`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("javascript", data));
