//! libFuzzer on the target `inputs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("inputs", data));
