//! Random choices that can be repeated.

use std::{env, io::Write, thread};

use fastrand::Rng;

const VARIABLE: &str = "REMUDA_SEED";

/// The seed of a test's random choices. A test that fails tells it.
pub(crate) struct Seed(u64);

impl Seed {
    /// A new one each time, unless the environment asks for one.
    pub(crate) fn pick() -> Self {
        let given = env::var(VARIABLE).ok().map(|text| text.parse().expect("a seed is a whole number"));
        Self(given.unwrap_or_else(|| fastrand::u64(..)))
    }

    /// A source of choices of its own for each number, so that they do not depend on who is faster.
    pub(crate) fn rng(&self, number: u64) -> Rng {
        Rng::with_seed(self.0.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut stderr = std::io::stderr();
            let _ = writeln!(stderr, "--- {VARIABLE}={} makes the same choices again", self.0);
        }
    }
}
