//! `mutation_fuzz SECONDS [TARGET…]`: runs mutated seeds through every parser, or the named ones, for a fixed time
//! each, and prints one line per target. An input that panics is written to `fuzz/found/TARGET` and makes the program
//! fail. The mutation is not guided by coverage: use `cargo fuzz` for that (`fuzz/README.md`).

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use rye_snapshots::fuzz::mutate::{SplitMix, mutate};
use rye_snapshots::fuzz::{FuzzTarget, TARGETS, seeds};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().ok_or("usage: mutation_fuzz SECONDS [TARGET…]")?.parse()?;
    let named: Vec<String> = args.collect();
    let mut broken = Vec::new();
    for target in TARGETS.iter().filter(|t| named.is_empty() || named.iter().any(|n| n == t.name)) {
        let (inputs, bytes, found) = fuzz_target(target, Duration::from_secs(seconds))?;
        println!("{:18} {inputs:>9} inputs of {:>7} KiB in total", target.name, bytes / 1024);
        if let Some(input) = found {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/found");
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(target.name), &input)?;
            broken.push(target.name);
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("these panicked: {}", broken.join(", ")).into()) }
}

type Mutated = (u64, usize, Option<Vec<u8>>);

fn fuzz_target(target: &FuzzTarget, time: Duration) -> Result<Mutated, Box<dyn Error>> {
    let mut pool: Vec<Vec<u8>> = seeds(target.name)?.into_iter().map(|(_, bytes)| bytes).collect();
    let began = Instant::now();
    let mut rng = SplitMix::new(u64::from(std::process::id()));
    let (mut inputs, mut total) = (0, 0);
    while began.elapsed() < time {
        let input = mutate(&pool, &mut rng);
        inputs += 1;
        total += input.len();
        if catch_unwind(|| (target.run)(&input)).is_err() {
            return Ok((inputs, total, Some(input)));
        }
        // Occasionally a surviving input becomes a seed.
        if input.len() < 4096 && rng.below(64) == 0 {
            let at = rng.below(512);
            if let Some(slot) = pool.get_mut(at) { *slot = input } else { pool.push(input) }
        }
    }
    Ok((inputs, total, None))
}
