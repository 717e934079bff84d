//! Reproducible random numbers from named sources: draws from one source never affect another.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A source of random numbers: xoshiro256++ seeded by `(seed, name, index)`.
///
/// The 64-bit seed of the generator is SplitMix64's finaliser, applied to `seed`, then to the result xor the FNV-1a
/// hash of `name`, then to that result xor `index`. The generator spreads it over its state with SplitMix64
/// (`seed_from_u64`).
#[derive(Clone, Debug)]
pub struct SeededRng(Xoshiro256PlusPlus);

impl SeededRng {
    pub fn new(seed: u64, name: &str, index: u64) -> Self {
        let name = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(Xoshiro256PlusPlus::seed_from_u64(finalise(finalise(finalise(seed) ^ name) ^ index)))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..bound`; the bias of the multiplication is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponentially distributed with mean 1, by inversion: 53 bits, never 0 inside the logarithm.
    #[allow(clippy::cast_precision_loss)] // 53 bits
    pub fn exponential(&mut self) -> f64 {
        -(((self.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64).ln()
    }

    /// Normally distributed with mean 0 and variance 1 (Box and Muller, Annals of Mathematical Statistics 29:2, 1958).
    #[allow(clippy::cast_precision_loss)] // 53 bits
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        let turn = (self.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        radius * (std::f64::consts::TAU * turn).cos()
    }

    /// True with the given probability.
    pub fn chance(&mut self, chance: Chance) -> bool {
        self.draw() >> 32 < chance.0
    }
}

/// A probability, in units of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(u64);

impl Chance {
    /// `percent` is 0 to 100; 0 is never and 100 is always true.
    #[allow(clippy::cast_sign_loss)] // not below 0
    pub fn percent(percent: f64) -> Self {
        Self((percent.clamp(0.0, 100.0) / 100.0 * 4_294_967_296.0).round() as u64)
    }

    pub fn is_never(self) -> bool {
        self.0 == 0
    }

    pub fn is_always(self) -> bool {
        self.0 == 1 << 32
    }
}

fn finalise(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ_by_seed_name_and_index() {
        let first = |seed, name, index| SeededRng::new(seed, name, index).draw();
        assert_eq!(first(1, "addresses", 0), first(1, "addresses", 0));
        assert_ne!(first(1, "addresses", 0), first(2, "addresses", 0));
        assert_ne!(first(1, "addresses", 0), first(1, "mix", 0));
        assert_ne!(first(1, "addresses", 0), first(1, "addresses", 1));
    }

    /// Seeds of studies depend on the derivation, so it may not change between versions.
    #[test]
    fn derivation_is_fixed() {
        let mut random = SeededRng::new(42, "addresses", 3);
        assert_eq!([random.draw(), random.draw()], [5_269_540_677_060_675_102, 18_281_538_442_115_214_017]);
    }

    #[test]
    fn percent_keeps_its_share() {
        let mut random = SeededRng::new(7, "mix", 0);
        let hits = (0..100_000).filter(|_| random.chance(Chance::percent(75.0))).count();
        assert!((74_500..75_500).contains(&hits), "{hits}");
        let rare = (0..100_000).filter(|_| random.chance(Chance::percent(0.5))).count();
        assert!((400..600).contains(&rare), "{rare}");
        assert!((0..1000).all(|_| random.chance(Chance::percent(100.0))));
        assert!(!(0..1000).any(|_| random.chance(Chance::percent(0.0))));
    }
}
