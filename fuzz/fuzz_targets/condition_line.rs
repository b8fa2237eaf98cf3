//! libFuzzer on the target `condition_line`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("condition_line", data));
