//! `instr`, `replace`, `trim` and `unhex`, in time linear in what they are given.

use std::collections::{HashMap, HashSet};

use memchr::memmem;

use super::like::{Text, up_to_nul};
use super::{Pace, Stopped};

/// Where a needle begins, in bytes from 1; 0 if nowhere.
pub(crate) fn instr_blob(haystack: &[u8], needle: &[u8]) -> i64 {
    match memmem::find(haystack, needle) {
        Some(at) => at as i64 + 1,
        None => 0,
    }
}

/// Where a needle begins, in characters from 1; 0 if nowhere. Only the beginnings of characters are looked at, and the very first byte.
pub(crate) fn instr_text(haystack: &[u8], needle: &[u8]) -> i64 {
    let Some(first) = needle.first() else { return 1 };
    if is_continuation(*first) {
        return i64::from(haystack.starts_with(needle));
    }
    match memmem::find(haystack, needle) {
        Some(at) => {
            1 + haystack[1.min(at)..at].iter().filter(|byte| !is_continuation(**byte)).count() as i64
                + i64::from(at > 0)
        }
        None => 0,
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// A text with each occurrence of a pattern replaced, of so many bytes at most. The pattern must not be empty.
pub(crate) fn replace(text: &[u8], pattern: &[u8], by: &[u8], bytes_max: usize) -> Result<Vec<u8>, Stopped> {
    assert!(!pattern.is_empty(), "SQLite replaces nothing by an empty pattern");
    let finder = memmem::Finder::new(pattern);
    let count = if by.len() > pattern.len() { finder.find_iter(text).count() } else { 0 };
    let bytes = text.len() + count * by.len().saturating_sub(pattern.len());
    if bytes > bytes_max {
        return Err(Stopped::TooLarge);
    }
    let mut out = Vec::with_capacity(bytes);
    let mut done = 0;
    for at in finder.find_iter(text) {
        out.extend_from_slice(&text[done..at]);
        out.extend_from_slice(by);
        done = at + pattern.len();
    }
    out.extend_from_slice(&text[done..]);
    Ok(out)
}

/// Which ends are trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    Left,
    Right,
    Both,
}

/// Characters to be trimmed. SQLite takes the first in its list that fits; where several fit, as only invalid UTF-8 does, their order decides.
struct Set<'a> {
    /// The place in the list of each character of one byte.
    single: [u32; 256],
    longer: HashMap<&'a [u8], u32>,
    /// The lengths of those, each once.
    lengths: Vec<usize>,
}

const ABSENT: u32 = u32::MAX;

impl<'a> Set<'a> {
    fn of(characters: &'a [u8], pace: &mut Pace<'_>) -> Result<Set<'a>, Stopped> {
        let mut set = Set { single: [ABSENT; 256], longer: HashMap::new(), lengths: Vec::new() };
        let mut text = Text::new(up_to_nul(characters));
        let mut place = 0;
        while text.at < text.bytes.len() {
            pace.step()?;
            let begin = text.at;
            text.skip();
            match &text.bytes[begin..text.at] {
                [byte] => {
                    let known = &mut set.single[usize::from(*byte)];
                    *known = place.min(*known);
                }
                longer => {
                    set.longer.entry(longer).or_insert(place);
                }
            }
            place += 1;
        }
        set.lengths = set.longer.keys().map(|character| character.len()).collect::<HashSet<_>>().into_iter().collect();
        Ok(set)
    }

    /// The length of the first character in the list that fits at an end; `bytes(n)` are the n bytes there.
    fn fits<'t>(
        &self,
        left: usize,
        bytes: impl Fn(usize) -> &'t [u8],
        pace: &mut Pace<'_>,
    ) -> Result<Option<usize>, Stopped> {
        if left == 0 {
            return Ok(None);
        }
        pace.step()?;
        let mut best = (self.single[usize::from(bytes(1)[0])], 1);
        for length in self.lengths.iter().copied().filter(|length| *length <= left) {
            // A long one, which only invalid UTF-8 is, costs more to look up.
            for _ in 0..length / 64 {
                pace.step()?;
            }
            if let Some(place) = self.longer.get(bytes(length)) {
                best = best.min((*place, length));
            }
        }
        Ok((best.0 != ABSENT).then_some(best.1))
    }
}

/// A text without the characters of a set at its ends.
pub(crate) fn trim<'t>(
    text: &'t [u8],
    characters: &[u8],
    sides: Sides,
    pace: &mut Pace<'_>,
) -> Result<&'t [u8], Stopped> {
    let set = Set::of(characters, pace)?;
    let mut rest = text;
    if sides != Sides::Right {
        while let Some(length) = set.fits(rest.len(), |length| &rest[..length], pace)? {
            rest = &rest[length..];
        }
    }
    if sides != Sides::Left {
        while let Some(length) = set.fits(rest.len(), |length| &rest[rest.len() - length..], pace)? {
            rest = &rest[..rest.len() - length];
        }
    }
    Ok(rest)
}

/// The bytes that hexadecimal digits stand for; `None` if the text is not made of pairs of them and, between pairs, characters to be passed over.
pub(crate) fn unhex(digits: &[u8], passed: &[u8], pace: &mut Pace<'_>) -> Result<Option<Vec<u8>>, Stopped> {
    let mut passes = HashSet::new();
    let mut text = Text::new(passed);
    while text.at < text.bytes.len() {
        pace.step()?;
        passes.insert(text.next());
    }
    let mut text = Text::new(up_to_nul(digits));
    let mut out = Vec::with_capacity(text.bytes.len() / 2);
    let value = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    loop {
        pace.step()?;
        if text.peek() == 0 {
            return Ok(Some(out));
        }
        let Some(high) = value(text.peek()) else {
            if !passes.contains(&text.next()) {
                return Ok(None);
            }
            continue;
        };
        text.at += 1;
        let Some(low) = value(text.peek()) else { return Ok(None) };
        text.at += 1;
        out.push(high << 4 | low);
    }
}
