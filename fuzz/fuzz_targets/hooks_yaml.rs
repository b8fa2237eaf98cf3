//! libFuzzer on the target `hooks_yaml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("hooks_yaml", data));
