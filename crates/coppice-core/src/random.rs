//! Where everything that nobody may guess comes from.

#[cfg(debug_assertions)]
thread_local! {
    static SIMULATED: std::cell::Cell<Option<u64>> = const { std::cell::Cell::new(None) };
}

/// Fills `bytes` from the system's random source.
///
/// # Panics
/// When there is none: nothing can be done without.
pub fn fill(bytes: &mut [u8]) {
    #[cfg(debug_assertions)]
    if let Some(state) = SIMULATED.get() {
        SIMULATED.set(Some(fill_from(state, bytes)));
        return;
    }
    // aws-lc aborts the process rather than return weak randomness, so an
    // error here cannot be handled in any meaningful way.
    aws_lc_rs::rand::fill(bytes).expect("the system random source works");
}

/// Makes what this thread draws follow from a seed, so that a simulation can be
/// repeated. Builds without debug assertions know only the system's source.
#[cfg(debug_assertions)]
pub fn seed_on_this_thread(seed: Option<u64>) {
    SIMULATED.set(seed);
}

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, 2014). Returns the state to go on from.
#[cfg(debug_assertions)]
fn fill_from(mut state: u64, bytes: &mut [u8]) -> u64 {
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn() -> [u8; 11] {
        let mut bytes = [0; 11];
        fill(&mut bytes);
        bytes
    }

    #[test]
    fn a_seed_decides_what_its_thread_draws_and_nothing_else_does() {
        let other = std::thread::spawn(drawn);
        seed_on_this_thread(Some(7));
        let first = [drawn(), drawn()];
        seed_on_this_thread(Some(7));
        assert_eq!(first, [drawn(), drawn()]);
        assert_ne!(first[0], first[1]);
        seed_on_this_thread(None);
        assert_ne!(drawn(), first[0]);
        assert_ne!(other.join().expect("it draws"), first[0]);
    }
}
