//! libFuzzer on the target `hooks_xml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("hooks_xml", data));
