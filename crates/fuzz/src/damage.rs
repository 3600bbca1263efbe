//! The ways in which an input is damaged.

use crate::rng::Rng;

/// Inputs do not grow beyond this.
const BYTES_MAX: usize = 1 << 16;

/// Values at which counts and lengths break.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// Damages an input in one way; others lend it their parts.
pub(crate) fn once(input: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    if input.is_empty() {
        input.push(rng.next() as u8);
        return;
    }
    let at = rng.below(input.len() as u64) as usize;
    match rng.below(9) {
        0 => input[at] ^= 1 << rng.below(8),
        1 => input[at] = rng.next() as u8,
        2 => input[at] = input[at].wrapping_add(if rng.below(2) == 0 { 1 } else { 0xff }),
        // A number of one, two, four or eight bytes takes a value at the edge of something.
        3 => {
            let width = 1 << rng.below(4);
            let value = rng.pick(&EDGES).to_be_bytes();
            let end = (at + width).min(input.len());
            input[at..end].copy_from_slice(&value[8 - (end - at)..]);
        }
        4 => input.truncate(at),
        5 => {
            let end = (at + 1 + rng.below(16) as usize).min(input.len());
            input.drain(at..end);
        }
        // Bytes come in, random ones or a varint that never ends.
        6 => {
            let count = 1 + rng.below(16) as usize;
            let byte = if rng.below(2) == 0 { 0xff } else { rng.next() as u8 };
            input.splice(at..at, std::iter::repeat_n(byte, count));
        }
        // A part occurs twice.
        7 => {
            let end = (at + 1 + rng.below(64) as usize).min(input.len());
            let part = input[at..end].to_vec();
            input.splice(at..at, part);
        }
        // The rest is another's.
        _ => {
            let other = rng.pick(others);
            let from = rng.below(other.len() as u64 + 1) as usize;
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
    }
    input.truncate(BYTES_MAX);
}
