//! libFuzzer on the target `condition_mapping`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("condition_mapping", data));
