//! FTS5's tokenizers, made to look whether the statement was interrupted: before each text, which for a query is each of its phrases, and within long ones.
//!
//! FTS5 looks at nothing while it reads a query, in time that grows with the square of its phrases, or a text. Its interface hands out where it keeps each
//! tokenizer's functions; we put ours in place of the one that divides a text. Registering others under their names would not do: FTS5 knows its default
//! by its place, and `trigram`, which LIKE and GLOB use, by its function. What is written over is looked at first; if it differs, no database is opened.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi;

use super::conn::Failure;
use super::originals;
use super::running::interrupted;

/// Those that are not made of others.
const NAMES: [&CStr; 3] = [c"unicode61", c"ascii", c"trigram"];

/// How many tokens lie between two looks.
const TOKENS: u32 = 4096;

type TokenCallback = unsafe extern "C" fn(*mut c_void, c_int, *const c_char, c_int, c_int, c_int) -> c_int;
type Tokenize = unsafe extern "C" fn(
    *mut ffi::Fts5Tokenizer,
    *mut c_void,
    c_int,
    *const c_char,
    c_int,
    Option<TokenCallback>,
) -> c_int;

/// SQLite's own, the same in the whole process.
static ORIGINALS: [OnceLock<Tokenize>; NAMES.len()] = [const { OnceLock::new() }; NAMES.len()];

/// Puts ours in place of SQLite's.
///
/// # Safety
/// The interface of an open connection, that no statement uses now, of the version that `originals` has looked at.
pub(super) unsafe fn install(api: *mut ffi::fts5_api) -> Result<(), Failure> {
    const OURS: [Tokenize; NAMES.len()] = [tokenize::<0>, tokenize::<1>, tokenize::<2>];
    // SAFETY: FTS5 keeps the three functions of its first interface directly before those of its second, in memory that it allocated. They are what it says
    // they are, which is looked at, before one is written over. Only this connection's thread uses them.
    unsafe {
        let found = (*api).xFindTokenizer.zip((*api).xFindTokenizer_v2);
        let (find, find_v2) = found.ok_or_else(originals::differs)?;
        for (place, name) in NAMES.iter().enumerate() {
            let mut data = ptr::null_mut();
            let mut first = ffi::fts5_tokenizer { xCreate: None, xDelete: None, xTokenize: None };
            let mut second: *mut ffi::fts5_tokenizer_v2 = ptr::null_mut();
            let code =
                find(api, name.as_ptr(), &mut data, &mut first) | find_v2(api, name.as_ptr(), &mut data, &mut second);
            if code != ffi::SQLITE_OK || second.is_null() {
                return Err(originals::differs());
            }
            let kept = second.cast::<ffi::fts5_tokenizer>().sub(1);
            let words = |at: *const ffi::fts5_tokenizer| *at.cast::<[usize; 3]>();
            let original = first.xTokenize.filter(|_| words(kept) == words(&first)).ok_or_else(originals::differs)?;
            if *ORIGINALS[place].get_or_init(|| original) as usize != original as usize {
                return Err(originals::differs());
            }
            (*kept).xTokenize = Some(OURS[place]);
        }
    }
    Ok(())
}

/// What FTS5 gave to be told the tokens.
struct Told {
    callback: TokenCallback,
    context: *mut c_void,
    left: u32,
}

unsafe extern "C" fn tokenize<const PLACE: usize>(
    tokenizer: *mut ffi::Fts5Tokenizer,
    context: *mut c_void,
    flags: c_int,
    text: *const c_char,
    length: c_int,
    callback: Option<TokenCallback>,
) -> c_int {
    if interrupted() {
        return ffi::SQLITE_INTERRUPT;
    }
    let (Some(original), Some(callback)) = (ORIGINALS[PLACE].get(), callback) else { return ffi::SQLITE_INTERNAL };
    let mut told = Told { callback, context, left: TOKENS };
    // SAFETY: what FTS5 gave, but for the callback, whose context lives through the call.
    unsafe { original(tokenizer, ptr::from_mut(&mut told).cast(), flags, text, length, Some(token)) }
}

unsafe extern "C" fn token(
    told: *mut c_void,
    flags: c_int,
    token: *const c_char,
    length: c_int,
    start: c_int,
    end: c_int,
) -> c_int {
    // SAFETY: what `tokenize` gave, and what the tokenizer gave.
    unsafe {
        let told = &mut *told.cast::<Told>();
        told.left -= 1;
        if told.left == 0 {
            told.left = TOKENS;
            if interrupted() {
                return ffi::SQLITE_INTERRUPT;
            }
        }
        (told.callback)(told.context, flags, token, length, start, end)
    }
}
