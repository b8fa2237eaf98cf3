//! `soup SECONDS [TARGET…]`: mutated seeds into every parser (or those named) for so long each, one line a target. What makes one
//! panic is written to `fuzz/found/TARGET` and ends the run with an error. Not guided by what is reached: for that there is
//! `cargo fuzz` (`fuzz/README.md`).

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use rye_snapshots::fuzz::mutate::{Dice, mutate};
use rye_snapshots::fuzz::{TARGETS, Target, seeds};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let seconds: u64 = args.next().ok_or("usage: soup SECONDS [TARGET…]")?.parse()?;
    let named: Vec<String> = args.collect();
    let mut broken = Vec::new();
    for target in TARGETS.iter().filter(|t| named.is_empty() || named.iter().any(|n| n == t.name)) {
        let (inputs, bytes, found) = stir(target, Duration::from_secs(seconds))?;
        println!("{:18} {inputs:>9} inputs {:>7} KiB", target.name, bytes / 1024);
        if let Some(input) = found {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/found");
            fs::create_dir_all(&folder)?;
            fs::write(folder.join(target.name), &input)?;
            broken.push(target.name);
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("these panicked: {}", broken.join(", ")).into()) }
}

type Stirred = (u64, usize, Option<Vec<u8>>);

fn stir(target: &Target, time: Duration) -> Result<Stirred, Box<dyn Error>> {
    let mut pool: Vec<Vec<u8>> = seeds(target.name)?.into_iter().map(|(_, bytes)| bytes).collect();
    let began = Instant::now();
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (mut inputs, mut total) = (0, 0);
    while began.elapsed() < time {
        let input = mutate(&pool, &mut dice);
        inputs += 1;
        total += input.len();
        if catch_unwind(|| (target.run)(&input)).is_err() {
            return Ok((inputs, total, Some(input)));
        }
        // Now and then one that was survived is a seed of others.
        if input.len() < 4096 && dice.below(64) == 0 {
            let at = dice.below(512);
            if let Some(slot) = pool.get_mut(at) { *slot = input } else { pool.push(input) }
        }
    }
    Ok((inputs, total, None))
}
