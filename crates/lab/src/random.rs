//! Pseudo-random numbers, the same in each run, so that all sides do the same work.
//!
//! The workloads and the simulation take them. They are good enough to spread accesses, and for
//! nothing else.

/// Marsaglia's xorshift generator. Its state is never 0.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator whose numbers depend on `seed`.
    pub fn new(seed: usize) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed as u64 + 1))
    }

    /// Returns a number below `bound`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // Multiplies: a division takes longer than some of the measured operations. OK: the result
        // is below `bound`.
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}
