//! Bytes that no peer can predict: SHA-256 over a secret key and a counter.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sha2::{Digest as _, Sha256};

/// Gives each connection its own source. All sources are different, including those given to other threads and by
/// clones, so no two connections get the same challenge.
#[derive(Clone)]
pub struct Randomness {
    key: [u8; 32],
    given: Arc<AtomicU64>,
}

impl Randomness {
    /// `key` comes from the system's random source.
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, given: Arc::default() }
    }

    pub fn source(&self, name: &str) -> Unpredictable {
        Unpredictable::new(&self.key, name, self.given.fetch_add(1, Ordering::Relaxed))
    }
}

impl std::fmt::Debug for Randomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Randomness")
    }
}

/// A source of unpredictable bytes. Sources with a different `(key, name, index)` are independent.
#[derive(Clone)]
pub struct Unpredictable {
    seed: [u8; 32],
    counter: u64,
}

impl Unpredictable {
    /// `key` comes from the system's random source.
    pub fn new(key: &[u8; 32], name: &str, index: u64) -> Self {
        let seed = Sha256::new().chain_update(key).chain_update(index.to_be_bytes()).chain_update(name).finalize();
        Self { seed: seed.into(), counter: 0 }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(32) {
            self.counter += 1;
            let block = Sha256::new().chain_update(self.seed).chain_update(self.counter.to_be_bytes()).finalize();
            piece.copy_from_slice(&block[..piece.len()]);
        }
    }
}

impl std::fmt::Debug for Unpredictable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unpredictable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_sources_given_are_alike() {
        let randomness = Randomness::new([1; 32]);
        let clone = randomness.clone();
        let sources = [randomness.source("a"), clone.source("a"), randomness.source("a"), clone.source("b")];
        let mut drawn: Vec<[u8; 32]> = sources
            .into_iter()
            .map(|mut source| {
                let mut bytes = [0; 32];
                source.fill(&mut bytes);
                bytes
            })
            .collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 4);
    }

    #[test]
    fn key_name_index_and_time_each_change_the_bytes() {
        let draw = |source: &mut Unpredictable| {
            let mut bytes = [0; 40];
            source.fill(&mut bytes);
            bytes
        };
        let mut source = Unpredictable::new(&[1; 32], "a", 0);
        let mut drawn = vec![draw(&mut source), draw(&mut source)];
        for (key, name, index) in [([2; 32], "a", 0), ([1; 32], "b", 0), ([1; 32], "a", 1)] {
            drawn.push(draw(&mut Unpredictable::new(&key, name, index)));
        }
        let all = drawn.len();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), all);
        assert_eq!(draw(&mut Unpredictable::new(&[1; 32], "a", 0)), draw(&mut Unpredictable::new(&[1; 32], "a", 0)));
    }
}
