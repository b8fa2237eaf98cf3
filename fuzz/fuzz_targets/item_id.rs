//! libFuzzer on the target `item_id`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rye_snapshots::fuzz::run("item_id", data));
