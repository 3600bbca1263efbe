//! FTS5's auxiliary functions `highlight`, `snippet` and `bm25`, in place of SQLite's, whose time grows with the product of a text's length and its hits.
//!
//! They give SQLite's answers from the same interface (`Fts5ExtensionApi`), which FTS5 hands out through `SELECT fts5(?1)`. What they do is in
//! `functions/excerpt.rs`, `snippet.rs` and `bm25.rs`; this file is the way to the row that a query stands on.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use rusqlite::ffi;

use super::conn::{Conn, Failure};
use super::functions::{Context, Values};
use super::hooks::{Hooks, contained};
use super::originals;
use super::stmt::slice;
use super::tokenizers;
use crate::functions::{Bm25, Code, Hit, Pace, SearchedRow, Stopped, TokenSink, highlight, snippet};

/// Puts ours in place of SQLite's.
///
/// # Safety
/// `hooks` stays where it is until the connection's handle is closed.
pub(super) unsafe fn install(conn: &Conn, hooks: NonNull<Hooks>) -> Result<(), Failure> {
    let (stmt, _) = conn.prepare("SELECT fts5(?1)", false)?;
    let mut stmt = stmt.expect("statements of our own are not empty");
    let mut api: *mut ffi::fts5_api = ptr::null_mut();
    // SAFETY: the name is NUL-terminated and stays; the pointer lives until the statement is gone.
    let code = unsafe {
        ffi::sqlite3_bind_pointer(stmt.raw(), 1, ptr::from_mut(&mut api).cast(), c"fts5_api_ptr".as_ptr(), None)
    };
    if code != ffi::SQLITE_OK {
        return Err(conn.failure(code));
    }
    stmt.step()?;
    drop(stmt);
    let functions: [(&CStr, ffi::fts5_extension_function); 3] =
        [(c"highlight", Some(call_highlight)), (c"snippet", Some(call_snippet)), (c"bm25", Some(call_bm25))];
    // SAFETY: FTS5 gave the interface of this connection, or none. The context lives as long as the handle, as the caller promises.
    unsafe {
        let create = api.as_ref().and_then(|api| api.xCreateFunction).ok_or_else(originals::differs)?;
        for (name, function) in functions {
            let code = create(api, name.as_ptr(), hooks.as_ptr().cast(), function, None);
            if code != ffi::SQLITE_OK {
                return Err(conn.failure(code));
            }
        }
        tokenizers::install(api)
    }
}

/// The row that a query stands on, while a function is called.
struct Row<'a> {
    api: &'a ffi::Fts5ExtensionApi,
    context: *mut ffi::Fts5Context,
    hooks: &'a Hooks,
}

/// Calls a function of FTS5's interface, which has all of them in the version that this was made for.
macro_rules! ask {
    ($row:expr, $name:ident $(, $argument:expr)*) => {
        match $row.api.$name {
            // SAFETY: the interface and the context are those of the call; what is pointed to lives through it.
            Some(function) => unsafe { function($row.context $(, $argument)*) },
            None => return Err(ffi::SQLITE_INTERNAL),
        }
    };
}

fn checked(code: c_int) -> Result<(), Code> {
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
}

impl SearchedRow for Row<'_> {
    fn hits(&self) -> Result<usize, Code> {
        let mut count = 0;
        checked(ask!(self, xInstCount, &mut count))?;
        Ok(count.max(0) as usize)
    }

    fn hit(&self, at: usize) -> Result<Hit, Code> {
        let (mut phrase, mut column, mut offset) = (0, 0, 0);
        checked(ask!(self, xInst, at as c_int, &mut phrase, &mut column, &mut offset))?;
        Ok(Hit { phrase: phrase.max(0) as usize, column, offset: i64::from(offset) })
    }

    fn phrase_size(&self, phrase: usize) -> Result<i64, Code> {
        Ok(i64::from(ask!(self, xPhraseSize, phrase as c_int)))
    }

    fn phrases(&self) -> Result<usize, Code> {
        Ok(ask!(self, xPhraseCount).max(0) as usize)
    }

    fn columns(&self) -> Result<c_int, Code> {
        Ok(ask!(self, xColumnCount))
    }

    fn text(&self, column: c_int) -> Result<Option<&[u8]>, Code> {
        let (mut start, mut length): (*const c_char, c_int) = (ptr::null(), 0);
        checked(ask!(self, xColumnText, column, &mut start, &mut length))?;
        // SAFETY: FTS5's text has so many bytes, and stays while the query stands on the row.
        Ok((!start.is_null()).then(|| unsafe { slice(start.cast(), length) }))
    }

    fn column_size(&self, column: c_int) -> Result<i64, Code> {
        let mut count = 0;
        checked(ask!(self, xColumnSize, column, &mut count))?;
        Ok(i64::from(count))
    }

    fn row_count(&self) -> Result<i64, Code> {
        let mut count = 0;
        checked(ask!(self, xRowCount, &mut count))?;
        Ok(count)
    }

    fn total_size(&self) -> Result<i64, Code> {
        let mut count = 0;
        checked(ask!(self, xColumnTotalSize, -1, &mut count))?;
        Ok(count)
    }

    fn rows_with(&self, phrase: usize) -> Result<i64, Code> {
        let mut counted = (0_i64, self.hooks);
        checked(ask!(self, xQueryPhrase, phrase as c_int, ptr::from_mut(&mut counted).cast(), Some(count_row)))?;
        Ok(counted.0)
    }

    fn tokenize(&self, column: c_int, text: &[u8], mut sink: &mut dyn TokenSink) -> Result<(), Code> {
        let (mut locale, mut length): (*const c_char, c_int) = (ptr::null(), 0);
        checked(ask!(self, xColumnLocale, column, &mut locale, &mut length))?;
        checked(ask!(
            self,
            xTokenize_v2,
            text.as_ptr().cast(),
            text.len() as c_int,
            locale,
            length,
            ptr::from_mut(&mut sink).cast(),
            Some(one_token)
        ))
    }
}

unsafe extern "C" fn one_token(
    sink: *mut c_void,
    flags: c_int,
    _: *const c_char,
    _: c_int,
    start: c_int,
    end: c_int,
) -> c_int {
    // SAFETY: what `tokenize` gave, which lives through its call.
    let sink = unsafe { &mut *sink.cast::<&mut dyn TokenSink>() };
    if flags & ffi::FTS5_TOKEN_COLOCATED != 0 {
        return ffi::SQLITE_OK;
    }
    match contained(|| sink.token(start.max(0) as usize, end.max(0) as usize)) {
        Some(Ok(())) => ffi::SQLITE_OK,
        Some(Err(code)) => code,
        None => ffi::SQLITE_INTERNAL,
    }
}

unsafe extern "C" fn count_row(
    _: *const ffi::Fts5ExtensionApi,
    _: *mut ffi::Fts5Context,
    counted: *mut c_void,
) -> c_int {
    // SAFETY: what `rows_with` gave, which lives through its call.
    let counted = unsafe { &mut *counted.cast::<(i64, &Hooks)>() };
    counted.0 += 1;
    if contained(|| counted.1.interrupted()) == Some(false) { ffi::SQLITE_OK } else { ffi::SQLITE_INTERRUPT }
}

/// The arguments of a call.
struct Given<'a>(&'a [*mut ffi::sqlite3_value]);

impl Given<'_> {
    /// A text up to its first NUL byte; `None` for NULL.
    fn text(&self, at: usize) -> Option<&[u8]> {
        // SAFETY: a value of the call. Its text is NUL-terminated and stays until the value is converted, which nothing does.
        unsafe {
            let start = ffi::sqlite3_value_text(self.0[at]).cast::<c_char>();
            (!start.is_null()).then(|| CStr::from_ptr(start).to_bytes())
        }
    }

    fn integer(&self, at: usize) -> i64 {
        // SAFETY: a value of the call.
        unsafe { ffi::sqlite3_value_int64(self.0[at]) }
    }

    fn column(&self) -> c_int {
        self.integer(0).clamp(-1, i64::from(c_int::MAX)) as c_int
    }
}

/// Runs a function, and answers with its text, its number, or NULL.
///
/// # Safety
/// What FTS5 gave to a function whose context is the connection's hooks.
unsafe fn call<T>(
    api: *const ffi::Fts5ExtensionApi,
    context: *mut ffi::Fts5Context,
    result: Context,
    count: c_int,
    values: Values,
    run: impl FnOnce(&Row<'_>, &Given<'_>, &mut Pace<'_>, usize) -> Result<T, Code>,
    answer: impl FnOnce(T),
) {
    // SAFETY: promised by the caller; the values live through the call, for which alone they are used. SQLite copies the message.
    unsafe {
        let Some(user_data) = (*api).xUserData else { return };
        let hooks = &*user_data(context).cast::<Hooks>();
        let row = Row { api: &*api, context, hooks };
        let given = if count <= 0 { &[][..] } else { std::slice::from_raw_parts(values, count as usize) };
        let bytes_max = ffi::sqlite3_limit(ffi::sqlite3_context_db_handle(result), ffi::SQLITE_LIMIT_LENGTH, -1);
        let go_on = || !hooks.interrupted();
        match contained(|| run(&row, &Given(given), &mut Pace::new(&go_on), bytes_max.max(0) as usize)) {
            Some(Ok(value)) => answer(value),
            Some(Err(ffi::SQLITE_TOOBIG)) => ffi::sqlite3_result_error_toobig(result),
            Some(Err(code)) => ffi::sqlite3_result_error_code(result, code),
            None => ffi::sqlite3_result_error_code(result, ffi::SQLITE_INTERNAL),
        }
    }
}

/// # Safety
/// The context of a call.
unsafe fn answer_text(result: Context, text: Option<Vec<u8>>) {
    // SAFETY: SQLite copies so many bytes.
    unsafe {
        match text {
            Some(text) => ffi::sqlite3_result_text64(
                result,
                text.as_ptr().cast(),
                text.len() as u64,
                ffi::SQLITE_TRANSIENT(),
                ffi::SQLITE_UTF8 as u8,
            ),
            None => ffi::sqlite3_result_null(result),
        }
    }
}

/// # Safety
/// The context of a call.
unsafe fn wrong_count(result: Context, name: &str) {
    let message = format!("wrong number of arguments to function {name}()");
    // SAFETY: SQLite copies so many bytes.
    unsafe { ffi::sqlite3_result_error(result, message.as_ptr().cast(), message.len() as c_int) };
}

unsafe extern "C" fn call_highlight(
    api: *const ffi::Fts5ExtensionApi,
    context: *mut ffi::Fts5Context,
    result: Context,
    count: c_int,
    values: Values,
) {
    // SAFETY: what FTS5 gave; so it is in what follows.
    unsafe {
        if count != 3 {
            return wrong_count(result, "highlight");
        }
        let run = |row: &Row<'_>, given: &Given<'_>, pace: &mut Pace<'_>, bytes_max| {
            highlight(row, given.column(), [given.text(1), given.text(2)], bytes_max, pace)
        };
        call(api, context, result, count, values, run, |text| answer_text(result, text));
    }
}

unsafe extern "C" fn call_snippet(
    api: *const ffi::Fts5ExtensionApi,
    context: *mut ffi::Fts5Context,
    result: Context,
    count: c_int,
    values: Values,
) {
    // SAFETY: as above.
    unsafe {
        if count != 5 {
            return wrong_count(result, "snippet");
        }
        let run = |row: &Row<'_>, given: &Given<'_>, pace: &mut Pace<'_>, bytes_max| {
            let texts = [1, 2, 3].map(|at| given.text(at).unwrap_or_default());
            snippet(row, given.column(), texts, given.integer(4).clamp(0, 64), bytes_max, pace)
        };
        call(api, context, result, count, values, run, |text| answer_text(result, text));
    }
}

unsafe extern "C" fn call_bm25(
    api: *const ffi::Fts5ExtensionApi,
    context: *mut ffi::Fts5Context,
    result: Context,
    count: c_int,
    values: Values,
) {
    let run = |row: &Row<'_>, given: &Given<'_>, pace: &mut Pace<'_>, _| {
        // What all rows of a query share is kept with the query.
        let mut kept = ask!(row, xGetAuxdata, 0).cast::<Bm25>();
        if kept.is_null() {
            kept = Box::into_raw(Box::new(Bm25::of(row)?));
            // FTS5 frees it, also if this fails.
            checked(ask!(row, xSetAuxdata, kept.cast(), Some(free_bm25)))?;
        }
        // SAFETY: it is of this kind, and this call alone uses it; the values are those of the call.
        unsafe {
            let weight = |column: usize| given.0.get(column).map_or(1.0, |value| ffi::sqlite3_value_double(*value));
            (*kept).score(row, weight, pace)
        }
    };
    // SAFETY: as above.
    unsafe { call(api, context, result, count, values, run, |score| ffi::sqlite3_result_double(result, score)) }
}

unsafe extern "C" fn free_bm25(kept: *mut c_void) {
    // SAFETY: it came from a box of this kind, and FTS5 gives it back once.
    drop(unsafe { Box::from_raw(kept.cast::<Bm25>()) });
}

impl From<Stopped> for Code {
    fn from(stopped: Stopped) -> Code {
        match stopped {
            Stopped::Interrupted => ffi::SQLITE_INTERRUPT,
            Stopped::TooLarge => ffi::SQLITE_TOOBIG,
        }
    }
}
