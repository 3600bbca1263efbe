//! Feeds decoders with bytes that nobody sent.
//!
//! Everything that reads bytes from a disk or a socket has a test whose name begins with `fuzz_` and which calls [`fuzz`] with samples of what is
//! valid. Each round takes a sample, damages it in one to four ways, on request puts its checksums right again so that the damage gets behind them, and
//! hands it to the decoder. The decoder must not panic; what it must do besides, the test asserts.
//!
//! The decoder tells in a few words what it came to. Inputs that lead to words not heard before become samples themselves, so that later rounds begin
//! where earlier ones got to: a substitute for the coverage that an instrumented build would measure, which needs no other compiler.
//!
//! The same seed gives the same inputs. `HIGHWATER_FUZZ_ROUNDS` and `HIGHWATER_FUZZ_SEED` ask for more or others; `cargo xtask fuzz` sets them.

#![forbid(unsafe_code)]

mod damage;
mod rng;

use std::collections::BTreeSet;

use rng::Rng;

/// Rounds of a test that is not told otherwise: a second or so without optimisation.
const ROUNDS: u64 = 20_000;

/// Samples kept at most; a newer one then takes the place of one that was found on the way.
const SAMPLES_MAX: usize = 512;

/// What a test saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Inputs tried.
    pub rounds: u64,
    /// The different things that the decoder came to, without their numbers.
    pub outcomes: BTreeSet<String>,
}

/// Damages samples and hands them to a decoder, round after round.
///
/// `repair` puts checksums and lengths right after the damage, in half of the rounds. `decode` says what it came to, in words; numbers in them do not count.
///
/// # Panics
/// If the decoder panics, after the input has been printed; if there is no sample; and if the samples and the damaged inputs all come to the same, since
/// then nothing was tried.
pub fn fuzz(samples: &[Vec<u8>], repair: impl Fn(&mut [u8]), decode: impl Fn(&[u8]) -> String) -> Seen {
    run(asked("HIGHWATER_FUZZ_ROUNDS").unwrap_or(ROUNDS), samples, repair, decode)
}

/// As [`fuzz`], with a fiftieth of the rounds: for what takes longer than reading some bytes.
///
/// # Panics
/// As [`fuzz`] does.
pub fn fuzz_costly(samples: &[Vec<u8>], repair: impl Fn(&mut [u8]), decode: impl Fn(&[u8]) -> String) -> Seen {
    run(asked("HIGHWATER_FUZZ_ROUNDS").unwrap_or(ROUNDS) / 50, samples, repair, decode)
}

fn run(rounds: u64, samples: &[Vec<u8>], repair: impl Fn(&mut [u8]), decode: impl Fn(&[u8]) -> String) -> Seen {
    assert!(!samples.is_empty(), "there is a sample of what is valid");
    let mut rng = Rng::new(asked("HIGHWATER_FUZZ_SEED").unwrap_or(1));
    let mut kept: Vec<Vec<u8>> = samples.to_vec();
    let mut outcomes = BTreeSet::new();
    for sample in samples {
        outcomes.insert(told(&decode, sample));
    }
    for _ in 0..rounds {
        let mut input = rng.pick(&kept).clone();
        for _ in 0..=rng.below(3) {
            damage::once(&mut input, &kept, &mut rng);
        }
        if rng.below(2) == 0 {
            repair(&mut input);
        }
        if outcomes.insert(told(&decode, &input)) {
            if kept.len() >= SAMPLES_MAX {
                let place = samples.len() + rng.below((kept.len() - samples.len()) as u64) as usize;
                kept.swap_remove(place.min(kept.len() - 1));
            }
            kept.push(input);
        }
    }
    assert!(outcomes.len() > 1, "every input came to {outcomes:?}: the decoder or the samples try nothing");
    Seen { rounds, outcomes }
}

/// What the decoder came to, without numbers. A decoder that panics leaves its input behind.
fn told(decode: &impl Fn(&[u8]) -> String, input: &[u8]) -> String {
    struct Witness<'a>(&'a [u8]);
    impl Drop for Witness<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                eprintln!("the input of {} bytes on which the decoder failed: {hex}", self.0.len());
            }
        }
    }
    let witness = Witness(input);
    let words = decode(input);
    drop(witness);
    words.chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect()
}

fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable} is a whole number; found {text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes, then their sum.
    fn valid(bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        out.push(0);
        repair(&mut out);
        out
    }

    fn repair(input: &mut [u8]) {
        if let Some((sum, rest)) = input.split_last_mut() {
            *sum = rest.iter().fold(0, |sum, byte| sum ^ byte);
        }
    }

    #[test]
    fn damage_gets_behind_checksums_and_finds_the_value_that_breaks_a_decoder() {
        let broken = |input: &[u8]| {
            let Some((sum, rest)) = input.split_last() else { return "empty".to_owned() };
            if rest.iter().fold(0, |sum, byte| sum ^ byte) != *sum {
                return "checksum".to_owned();
            }
            // An index that nobody checked.
            let table = [0u8; 250];
            format!("read {}", rest.iter().map(|byte| u32::from(table[usize::from(*byte)])).sum::<u32>())
        };
        let outcome = std::panic::catch_unwind(|| fuzz(&[valid(b"abc")], repair, broken));
        assert!(outcome.is_err(), "a byte of 250 or more gets through");
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let run = || {
            let log = std::cell::RefCell::new(Vec::new());
            let decode = |input: &[u8]| {
                log.borrow_mut().push(input.to_vec());
                format!("{:?}", input.first().map(|byte| byte.leading_zeros() > 3))
            };
            let seen = fuzz(&[valid(b"abc"), valid(b"")], |_| {}, decode);
            (seen, log.into_inner().into_iter().take(1_000).collect::<Vec<_>>())
        };
        assert_eq!(run(), run());
    }

    #[test]
    #[should_panic(expected = "try nothing")]
    fn a_decoder_that_looks_at_nothing_is_noticed() {
        fuzz(&[valid(b"abc")], repair, |_| "fine".to_owned());
    }
}
