//! libFuzzer on the target `knowledge`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("knowledge", data));
