//! Mutation of inputs: flips, cuts, repeats, splices, and inserted keywords. Equal seeds produce equal bytes. Mutation
//! is not guided by coverage, unlike libFuzzer.

/// A seeded pseudo-random generator (`splitmix64`).
#[derive(Debug, Clone)]
pub struct SplitMix(u64);

impl SplitMix {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let n = n as u64;
        self.next().checked_rem(n).and_then(|r| usize::try_from(r).ok()).unwrap_or(0)
    }
}

/// Largest generated input in bytes.
const MAX_INPUT_BYTES: usize = 64 * 1024;

/// Keywords of the languages, and inputs that broke parsers before.
const KEYWORDS: [&str; 48] = [
    "```xml\n",
    "```\n",
    "<directive name=\"a\">",
    "</directive>",
    "<hooks>",
    "<hook id=\"h\" event=\"thread_started\">",
    "<when>",
    "]]>",
    "<![CDATA[",
    "&lt;",
    "&#x0;",
    "---\n",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "<<: ",
    "|\n ",
    "\"",
    "'",
    "\\",
    "${",
    "${a || \"",
    "$${",
    "{input:",
    "|",
    "||",
    "&&",
    "!",
    "== ",
    "in ",
    "exists(",
    "-9223372036854775808",
    "18446744073709551616",
    "1e400",
    "\u{0}",
    "\u{feff}",
    "\u{202e}",
    "é",
    "\r\n",
    "data: ",
    "\n\n",
    "event: ",
    "rye.*.",
];

/// Returns a random seed after a few mutations.
pub fn mutate(seeds: &[Vec<u8>], rng: &mut SplitMix) -> Vec<u8> {
    let mut bytes = seeds.get(rng.below(seeds.len())).cloned().unwrap_or_default();
    for _ in 0..=rng.below(6) {
        let at = rng.below(bytes.len() + 1);
        let to = (at + rng.below(24)).min(bytes.len());
        match rng.below(7) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.below(8);
                }
            }
            1 => drop(bytes.drain(at..to)),
            2 => {
                let word = KEYWORDS.get(rng.below(KEYWORDS.len())).copied().unwrap_or_default();
                bytes.splice(at..at, word.bytes());
            }
            3 => {
                let part = bytes.get(at..to).unwrap_or_default().repeat(1 + rng.below(8));
                bytes.splice(at..at, part);
            }
            4 => bytes.truncate(at),
            5 => {
                let other = seeds.get(rng.below(seeds.len())).map(Vec::as_slice).unwrap_or_default();
                let from = rng.below(other.len() + 1);
                let part = other.get(from..(from + rng.below(64)).min(other.len())).unwrap_or_default();
                bytes.splice(at..to, part.iter().copied());
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = u8::try_from(rng.below(256)).unwrap_or(0);
                }
            }
        }
        bytes.truncate(MAX_INPUT_BYTES);
    }
    bytes
}
