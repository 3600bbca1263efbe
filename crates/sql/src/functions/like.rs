//! LIKE and GLOB, as SQLite's `patternCompare` finds them.
//!
//! SQLite calls itself for each wildcard that stands for any text; but the answer to the last such wildcard is the answer to all before it, so that one place
//! to come back to is enough. The work may be the product of both lengths, so the clock is looked at.

use memchr::{memchr, memchr2};

use super::{Pace, Stopped};

/// Which characters mean what. Laid out as SQLite's `struct compareInfo`, whose first bytes its query planner reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Wildcards {
    /// Any text: `%` or `*`. 0: none.
    pub(crate) all: u8,
    /// Any character: `_` or `?`. 0: none.
    pub(crate) one: u8,
    /// The beginning of a set: `[`. 0: there are no sets.
    pub(crate) set: u8,
    /// 1: upper and lower case of ASCII are the same.
    pub(crate) no_case: u8,
}

/// How SQLite begins the value of a character from its first byte, by that byte less 0xc0.
fn lead(byte: u8) -> u32 {
    u32::from(match byte {
        0xc0..=0xdf => byte - 0xc0,
        0xe0..=0xef => byte - 0xe0,
        0xf0..=0xf7 => byte - 0xf0,
        0xf8..=0xfb => byte - 0xf8,
        0xfc..=0xfd => byte - 0xfc,
        _ => 0,
    })
}

/// A text being read as SQLite reads it, invalid UTF-8 included; behind its end come zeros.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Text<'a> {
        Text { bytes, at: 0 }
    }

    pub(super) fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    /// The next character; 0 at the end.
    pub(super) fn next(&mut self) -> u32 {
        let Some(first) = self.bytes.get(self.at).copied() else { return 0 };
        self.at += 1;
        if first < 0xc0 {
            return u32::from(first);
        }
        let mut character = lead(first);
        while self.peek() & 0xc0 == 0x80 {
            character = (character << 6).wrapping_add(u32::from(self.peek() & 0x3f));
            self.at += 1;
        }
        if character < 0x80 || character & 0xffff_f800 == 0xd800 {
            return 0xfffd;
        }
        character
    }

    /// Passes over a character.
    pub(super) fn skip(&mut self) {
        let lead = self.peek();
        self.at += 1;
        if lead >= 0xc0 {
            while self.peek() & 0xc0 == 0x80 {
                self.at += 1;
            }
        }
    }
}

/// A text up to its first NUL, which is all that SQLite looks at.
pub(super) fn up_to_nul(bytes: &[u8]) -> &[u8] {
    memchr(0, bytes).map_or(bytes, |end| &bytes[..end])
}

/// How many characters a text has up to its first NUL.
pub(crate) fn character_count(bytes: &[u8]) -> usize {
    let mut text = Text::new(up_to_nul(bytes));
    let mut count = 0;
    while text.at < text.bytes.len() {
        text.skip();
        count += 1;
    }
    count
}

/// The first character of a text.
pub(crate) fn first_character(bytes: &[u8]) -> u32 {
    Text::new(up_to_nul(bytes)).next()
}

/// What a wildcard for any text looks for: where the pattern goes on once it is found.
#[derive(Clone, Copy)]
enum Search<'a> {
    /// This character, then the rest of the pattern.
    Character(u32, Text<'a>),
    /// The rest of the pattern, which begins with a set, anywhere.
    Anywhere(Text<'a>),
}

/// What a stretch of the pattern without a wildcard for any text came to.
enum Stretch<'a> {
    Ended(bool),
    Differs,
    /// A wildcard for any text; the text is behind what came before.
    Wildcard(Text<'a>, Text<'a>),
}

/// Whether a text matches a pattern. `other` is the escape character of LIKE (0: none) or the `[` of GLOB.
pub(crate) fn like(
    pattern: &[u8],
    text: &[u8],
    wildcards: Wildcards,
    other: u32,
    pace: &mut Pace<'_>,
) -> Result<bool, Stopped> {
    let matcher = Matcher { wildcards, other };
    let (mut pattern, mut text) = (Text::new(up_to_nul(pattern)), Text::new(up_to_nul(text)));
    let mut search: Option<(Search<'_>, Text<'_>)> = None;
    loop {
        match matcher.stretch(pattern, text, pace)? {
            Stretch::Ended(matches) if matches => return Ok(true),
            Stretch::Ended(_) | Stretch::Differs => {}
            Stretch::Wildcard(behind, from) => match matcher.wildcard(behind, from, pace)? {
                Begun::Ended(matches) => return Ok(matches),
                Begun::Search(what, from) => search = Some((what, from)),
            },
        }
        let Some((what, from)) = &mut search else { return Ok(false) };
        let Some((next_pattern, next_text)) = matcher.find(*what, from, pace)? else { return Ok(false) };
        (pattern, text) = (next_pattern, next_text);
    }
}

enum Begun<'a> {
    Ended(bool),
    Search(Search<'a>, Text<'a>),
}

struct Matcher {
    wildcards: Wildcards,
    other: u32,
}

impl Matcher {
    /// Begins a wildcard for any text, behind its character.
    fn wildcard<'a>(
        &self,
        mut pattern: Text<'a>,
        mut text: Text<'a>,
        pace: &mut Pace<'_>,
    ) -> Result<Begun<'a>, Stopped> {
        let (all, one) = (u32::from(self.wildcards.all), u32::from(self.wildcards.one));
        let mut character = pattern.next();
        while character == all || (character == one && one != 0) {
            pace.step()?;
            if character == one && text.next() == 0 {
                return Ok(Begun::Ended(false));
            }
            character = pattern.next();
        }
        if character == 0 {
            return Ok(Begun::Ended(true));
        }
        if character == self.other {
            if self.wildcards.set != 0 {
                return Ok(Begun::Search(Search::Anywhere(Text { at: pattern.at - 1, ..pattern }), text));
            }
            character = pattern.next();
            if character == 0 {
                return Ok(Begun::Ended(false));
            }
        }
        Ok(Begun::Search(Search::Character(character, pattern), text))
    }

    /// Finds the next place from which the rest of the pattern may match, and moves on behind it.
    fn find<'a>(
        &self,
        search: Search<'a>,
        from: &mut Text<'a>,
        pace: &mut Pace<'_>,
    ) -> Result<Option<(Text<'a>, Text<'a>)>, Stopped> {
        pace.step()?;
        let (character, rest) = match search {
            Search::Anywhere(pattern) => {
                if from.at >= from.bytes.len() {
                    return Ok(None);
                }
                let here = *from;
                from.skip();
                return Ok(Some((pattern, here)));
            }
            Search::Character(character, rest) => (character, rest),
        };
        if let Some(ascii) = u8::try_from(character).ok().filter(u8::is_ascii) {
            let ahead = from.bytes.get(from.at..).unwrap_or_default();
            let found = if self.wildcards.no_case == 1 {
                memchr2(ascii.to_ascii_uppercase(), ascii.to_ascii_lowercase(), ahead)
            } else {
                memchr(ascii, ahead)
            };
            return Ok(found.map(|at| {
                from.at += at + 1;
                (rest, *from)
            }));
        }
        loop {
            pace.step()?;
            match from.next() {
                0 => return Ok(None),
                found if found == character => return Ok(Some((rest, *from))),
                _ => {}
            }
        }
    }

    /// Compares up to the end of the pattern or to the next wildcard for any text.
    fn stretch<'a>(
        &self,
        mut pattern: Text<'a>,
        mut text: Text<'a>,
        pace: &mut Pace<'_>,
    ) -> Result<Stretch<'a>, Stopped> {
        let mut escaped = None;
        loop {
            pace.step()?;
            let mut character = pattern.next();
            if character == 0 {
                return Ok(Stretch::Ended(text.peek() == 0));
            }
            if character == u32::from(self.wildcards.all) {
                return Ok(Stretch::Wildcard(pattern, text));
            }
            if character == self.other {
                if self.wildcards.set != 0 {
                    if !in_set(&mut pattern, text.next(), pace)? {
                        return Ok(Stretch::Differs);
                    }
                    continue;
                }
                character = pattern.next();
                if character == 0 {
                    return Ok(Stretch::Differs);
                }
                escaped = Some(pattern.at);
            }
            let found = text.next();
            let equal = character == found || (self.wildcards.no_case == 1 && equal_but_for_case(character, found));
            let is_one = character == u32::from(self.wildcards.one) && escaped != Some(pattern.at) && found != 0;
            if !equal && !is_one {
                return Ok(Stretch::Differs);
            }
        }
    }
}

fn equal_but_for_case(one: u32, other: u32) -> bool {
    match (u8::try_from(one), u8::try_from(other)) {
        (Ok(one), Ok(other)) => one.is_ascii() && other.is_ascii() && one.eq_ignore_ascii_case(&other),
        _ => false,
    }
}

/// Whether a character is in the set whose `[` has been read, and passes over the set.
fn in_set(pattern: &mut Text<'_>, character: u32, pace: &mut Pace<'_>) -> Result<bool, Stopped> {
    if character == 0 {
        return Ok(false);
    }
    let (mut seen, mut invert, mut before) = (false, false, 0);
    let mut member = pattern.next();
    if member == u32::from(b'^') {
        invert = true;
        member = pattern.next();
    }
    if member == u32::from(b']') {
        seen = character == u32::from(b']');
        member = pattern.next();
    }
    while member != 0 && member != u32::from(b']') {
        pace.step()?;
        if member == u32::from(b'-') && pattern.peek() != b']' && pattern.peek() != 0 && before > 0 {
            member = pattern.next();
            seen |= character >= before && character <= member;
            before = 0;
        } else {
            seen |= character == member;
            before = member;
        }
        member = pattern.next();
    }
    Ok(member != 0 && seen != invert)
}
