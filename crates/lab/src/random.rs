//! Numbers that look as if they came by chance, the same each time.

/// Marsaglia's xorshift. Never 0.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Others for each `seed`.
    pub fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed as u64 + 1))
    }

    /// A number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // By multiplying: whoever asks waits for it, and a division takes longer than what some
        // measure. OK: it is below `bound`.
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}
