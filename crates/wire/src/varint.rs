//! Zig-zag variable-length integers, as Kafka's records use them (and Protocol Buffers' `sint64`): seven bits to a byte, least significant
//! first, small magnitudes of either sign short.

/// Appends `value`; at most ten bytes.
pub(crate) fn put(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// How many bytes [`put`] appends.
pub(crate) fn len(value: i64) -> usize {
    let bits = 64 - (((value << 1) ^ (value >> 63)) as u64 | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Reads the integer at the beginning of `bytes`, and how many bytes it took. `None` if they end within it or it does not fit in an `i64`.
pub(crate) fn get(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for the one bit that is left of 64.
        if index == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            return Some(((value >> 1) as i64 ^ -((value & 1) as i64), index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_magnitudes_take_one_byte_and_the_extremes_ten() {
        for (value, wanted) in [(0, &[0u8][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (-64, &[127]), (64, &[128, 1])] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!(out, wanted, "{value}");
        }
        for value in [i64::MIN, i64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            assert_eq!((out.len(), get(&out)), (10, Some((value, 10))));
        }
        assert_eq!(get(&[]), None);
        assert_eq!(get(&[0x80; 11]), None);
        assert_eq!(get(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), None);
    }

    proptest! {
        #[test]
        fn reads_back_what_it_wrote(value: i64, behind: Vec<u8>) {
            let mut out = Vec::new();
            put(&mut out, value);
            let size = out.len();
            prop_assert_eq!(len(value), size);
            out.extend(behind);
            prop_assert_eq!(get(&out), Some((value, size)));
        }
    }
}
