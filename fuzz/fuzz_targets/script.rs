//! libFuzzer on the target `script`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("script", data));
