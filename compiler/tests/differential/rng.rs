//! A seeded pseudo-random generator (`splitmix64`) for generated tests.

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(7))
    }

    /// Returns a number below `n`; `n` must be positive.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }

    /// Returns true with probability 1/`n`.
    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    #[allow(dead_code, reason = "each test file uses a part of it")]
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}
