//! Bytes as somebody reads them, and which of them the disk has spoiled: what they should be is kept, so that they can be put right again.

use std::collections::BTreeMap;

/// A file's bytes, from one side.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    bytes: Vec<u8>,
    /// What should be there, by place, where something else is.
    right: BTreeMap<u64, u8>,
}

impl View {
    pub(super) fn new(bytes: &[u8]) -> View {
        View { bytes: bytes.to_vec(), right: BTreeMap::new() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes, extending where needed. What is written is right.
    pub(super) fn put(&mut self, at: u64, new: &[u8]) {
        let (begin, end) = (at as usize, at as usize + new.len());
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[begin..end].copy_from_slice(new);
        if !self.right.is_empty() {
            self.right.retain(|place, _| !(at..end as u64).contains(place));
        }
    }

    pub(super) fn resize(&mut self, len: u64) {
        self.bytes.resize(len as usize, 0);
        self.right.split_off(&len);
    }

    pub(super) fn flip(&mut self, at: usize, mask: u8) {
        if let Some(byte) = self.bytes.get_mut(at) {
            *byte ^= mask;
        }
    }

    /// Something else is there from now on, as far as the file reaches.
    pub(super) fn spoil(&mut self, at: u64, wrong: &[u8]) {
        for (place, wrong) in (at..).zip(wrong) {
            let Some(byte) = self.bytes.get_mut(place as usize) else { return };
            let right = *self.right.entry(place).or_insert(*byte);
            *byte = *wrong;
            if right == *wrong {
                self.right.remove(&place);
            }
        }
    }

    pub(super) fn spoiled(&self) -> bool {
        !self.right.is_empty()
    }

    pub(super) fn mend(&mut self) {
        for (place, right) in std::mem::take(&mut self.right) {
            self.bytes[place as usize] = right;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spoiled_is_right_again_unless_it_was_written_since() {
        let mut view = View::new(b"abcdef");
        view.spoil(1, b"XcY");
        view.spoil(1, b"Z");
        assert_eq!((view.bytes(), view.spoiled()), (&b"aZcYef"[..], true));
        view.put(3, b"__");
        view.mend();
        assert_eq!((view.bytes(), view.spoiled()), (&b"abc__f"[..], false));
        view.spoil(0, b"X");
        view.spoil(0, b"a");
        assert!(!view.spoiled(), "by chance it shows what it should");
        view.spoil(5, b"XYZ");
        view.resize(5);
        assert!(!view.spoiled(), "what is cut off is not wrong any more");
    }
}
