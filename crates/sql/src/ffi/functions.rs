//! Installs our SQL functions in place of SQLite's (see `functions`), on every connection: CHECKs, generated columns and indexes use them too.
//!
//! SQLite uses an index for LIKE and GLOB only if a flag of the function says so, which its interface does not set. We set it where SQLite keeps it: within a
//! call of our own function, the context's second word points to the function's definition. The definition is taken for what it is only if the number of
//! arguments, the flags, our context and our function lie where this version of SQLite has them; otherwise the connection is not opened.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, NonNull};

use rusqlite::ffi;

use super::bounded;
use super::conn::{Conn, Failure};
use super::hooks::{Hooks, contained};
use super::memory;
use super::originals::ContextLayout;
use super::running::interrupted;
use super::search;
use super::stmt::slice;
use crate::functions::{self, Pace, Sides, Stopped, Wildcards};

pub(super) type Context = *mut ffi::sqlite3_context;
pub(super) type Values = *mut *mut ffi::sqlite3_value;
pub(super) type Function = unsafe extern "C" fn(Context, c_int, Values);

/// What is known of every function: SQLITE_FUNC_CONSTANT, which is SQLITE_DETERMINISTIC, and the encoding.
const FLAGS: c_int = ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC | ffi::SQLITE_INNOCUOUS;
/// SQLite's SQLITE_FUNC_LIKE, SQLITE_FUNC_CASE and SQLITE_FUNC_BUILTIN.
const FUNC_LIKE: u32 = 0x4;
const FUNC_CASE: u32 = 0x8;
const FUNC_BUILTIN: u32 = 0x0080_0000;

/// The context of LIKE and GLOB. SQLite's query planner reads its first three bytes.
#[repr(C)]
struct LikeContext {
    wildcards: Wildcards,
    hooks: NonNull<Hooks>,
    /// Whether its definition bears the flag. The first call gives it.
    marked: Cell<bool>,
}

const GLOB: Wildcards = Wildcards { all: b'*', one: b'?', set: b'[', no_case: 0 };

fn like_wildcards(case_sensitive: bool) -> Wildcards {
    Wildcards { all: b'%', one: b'_', set: 0, no_case: u8::from(!case_sensitive) }
}

/// Installs the functions.
///
/// # Safety
/// `hooks` stays where it is until the connection's handle is closed.
pub(super) unsafe fn install(conn: &Conn, hooks: NonNull<Hooks>) -> Result<(), Failure> {
    let all: [(&CStr, c_int, Function); 9] = [
        (c"instr", 2, instr),
        (c"replace", 3, replace),
        (c"trim", 1, trim_both),
        (c"trim", 2, trim_both),
        (c"ltrim", 1, trim_left),
        (c"ltrim", 2, trim_left),
        (c"rtrim", 1, trim_right),
        (c"rtrim", 2, trim_right),
        (c"unhex", 2, unhex),
    ];
    for (name, arguments, function) in all {
        let context = hooks.as_ptr().cast();
        // SAFETY: the name is NUL-terminated; the context lives as long as the handle, as the caller promises.
        let code = unsafe {
            ffi::sqlite3_create_function_v2(
                conn.raw(),
                name.as_ptr(),
                arguments,
                FLAGS,
                context,
                Some(function),
                None,
                None,
                None,
            )
        };
        if code != ffi::SQLITE_OK {
            return Err(conn.failure(code));
        }
    }
    bounded::install(conn)?;
    // SAFETY: as the caller promises.
    unsafe {
        search::install(conn, hooks)?;
        install_like(conn, hooks, c"glob", GLOB, &[2])?;
        install_like(conn, hooks, c"like", like_wildcards(false), &[2, 3])
    }
}

/// Installs LIKE anew, after SQLite may have put its own in place (`PRAGMA case_sensitive_like`), and as it now is: with or without regard to case.
///
/// # Safety
/// As for [`install`].
pub(super) unsafe fn install_like_as_it_is(conn: &Conn, hooks: NonNull<Hooks>) -> Result<(), Failure> {
    let case_sensitive = conn.query_integer("SELECT 'a' NOT LIKE 'A'")? == Some(1);
    // SAFETY: as the caller promises.
    unsafe { install_like(conn, hooks, c"like", like_wildcards(case_sensitive), &[2, 3]) }
}

unsafe fn install_like(
    conn: &Conn,
    hooks: NonNull<Hooks>,
    name: &CStr,
    wildcards: Wildcards,
    arguments: &[c_int],
) -> Result<(), Failure> {
    for arguments in arguments.iter().copied() {
        let context = Box::into_raw(Box::new(LikeContext { wildcards, hooks, marked: Cell::new(false) }));
        // SAFETY: the context is boxed, and freed by SQLite once it has no more use for the function, also if this fails.
        let code = unsafe {
            ffi::sqlite3_create_function_v2(
                conn.raw(),
                name.as_ptr(),
                arguments,
                FLAGS,
                context.cast(),
                Some(like),
                None,
                None,
                Some(free_like),
            )
        };
        if code != ffi::SQLITE_OK {
            return Err(conn.failure(code));
        }
        let probe = if arguments == 2 { "?1, ?2" } else { "?1, ?2, '\\'" };
        let probe = format!("SELECT {}({probe})", name.to_string_lossy());
        let (stmt, _) = conn.prepare(&probe, false)?;
        let mut stmt = stmt.expect("statements of our own are not empty");
        stmt.step()?;
        if stmt.integer(0) != 1 {
            return Err(Failure {
                code: ffi::SQLITE_INTERNAL,
                message: "this version of SQLite keeps its functions otherwise than ours were made for".to_string(),
                offset: None,
            });
        }
    }
    Ok(())
}

unsafe extern "C" fn free_like(context: *mut c_void) {
    // SAFETY: it came from a box of this kind, and SQLite gives it back once.
    drop(unsafe { Box::from_raw(context.cast::<LikeContext>()) });
}

/// Sets the flag that makes SQLite use indexes for LIKE or GLOB. Answers whether that could be done.
///
/// # Safety
/// What SQLite gave to the function, and its context.
unsafe fn mark(context: Context, count: c_int, like: &LikeContext) -> bool {
    // SAFETY: a context's second word points to the definition of the function. What is read there is looked at before anything is written. The definition
    // lives as long as the function is defined, and only this connection's thread uses it.
    unsafe {
        let definition = (*context.cast::<ContextLayout>()).definition;
        let known = !definition.is_null()
            && (*definition).arguments == count as i16
            && (*definition).user_data.cast_const() == ptr::from_ref(like).cast()
            && (*definition).flags & 0xffff == (ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC) as u32
            && (*definition).flags & FUNC_BUILTIN == 0;
        if known {
            let case = if like.wildcards.no_case == 1 { 0 } else { FUNC_CASE };
            (*definition).flags |= FUNC_LIKE | case;
        }
        known
    }
}

/// The arguments of a call.
struct Arguments<'a> {
    context: Context,
    values: &'a [*mut ffi::sqlite3_value],
}

impl<'a> Arguments<'a> {
    /// # Safety
    /// What SQLite gave to a function, for the time of the call.
    unsafe fn new(context: Context, count: c_int, values: Values) -> Arguments<'a> {
        let count = count.max(0) as usize;
        // SAFETY: SQLite gives as many as it says.
        let values = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(values, count) } };
        Arguments { context, values }
    }

    fn kind(&self, at: usize) -> c_int {
        // SAFETY: a value of the call.
        unsafe { ffi::sqlite3_value_type(self.values[at]) }
    }

    /// The bytes of a value as text, or `None` for NULL. A blob's are taken as they are, which is what SQLite makes of them, and it stays one.
    fn bytes(&self, at: usize) -> Option<&'a [u8]> {
        let value = self.values[at];
        // SAFETY: a value of the call; the bytes stay until it is converted, which nothing here does afterwards.
        unsafe {
            match ffi::sqlite3_value_type(value) {
                ffi::SQLITE_NULL => None,
                ffi::SQLITE_BLOB => {
                    let start = ffi::sqlite3_value_blob(value);
                    Some(slice(start.cast(), ffi::sqlite3_value_bytes(value)))
                }
                _ => {
                    let start = ffi::sqlite3_value_text(value);
                    Some(slice(start, ffi::sqlite3_value_bytes(value)))
                }
            }
        }
    }

    fn limit(&self, which: c_int) -> usize {
        // SAFETY: the handle of the connection that calls; -1 changes nothing.
        unsafe { ffi::sqlite3_limit(ffi::sqlite3_context_db_handle(self.context), which, -1) }.max(0) as usize
    }

    fn error(&self, message: &str) {
        // SAFETY: SQLite copies so many bytes of it.
        unsafe { ffi::sqlite3_result_error(self.context, message.as_ptr().cast(), message.len() as c_int) };
    }

    fn integer(&self, value: i64) {
        // SAFETY: the context of the call.
        unsafe { ffi::sqlite3_result_int64(self.context, value) };
    }

    fn text(&self, bytes: &[u8]) {
        // SAFETY: SQLite copies so many bytes.
        unsafe {
            ffi::sqlite3_result_text64(
                self.context,
                bytes.as_ptr().cast(),
                bytes.len() as u64,
                ffi::SQLITE_TRANSIENT(),
                ffi::SQLITE_UTF8 as u8,
            );
        }
    }

    fn blob(&self, bytes: &[u8]) {
        // SAFETY: SQLite copies so many bytes. An empty slice's pointer is not null, so that this is no NULL.
        unsafe {
            ffi::sqlite3_result_blob64(
                self.context,
                bytes.as_ptr().cast(),
                bytes.len() as u64,
                ffi::SQLITE_TRANSIENT(),
            );
        }
    }

    fn no_memory(&self) {
        // SAFETY: the context of the call.
        unsafe { ffi::sqlite3_result_error_nomem(self.context) };
    }

    fn stopped(&self, stopped: Stopped) {
        // SAFETY: the context of the call.
        unsafe {
            match stopped {
                Stopped::Interrupted => ffi::sqlite3_result_error_code(self.context, ffi::SQLITE_INTERRUPT),
                Stopped::TooLarge => ffi::sqlite3_result_error_toobig(self.context),
            }
        }
    }
}

/// Runs a function of ours. `hooks` are those of the connection, if it is known whose they are.
///
/// # Safety
/// What SQLite gave to a function, whose context is the connection's hooks.
unsafe fn run(
    context: Context,
    count: c_int,
    values: Values,
    function: impl FnOnce(&Arguments<'_>, &mut Pace<'_>) -> Result<(), Stopped>,
) {
    // SAFETY: promised by the caller.
    let (hooks, arguments) =
        unsafe { (&*ffi::sqlite3_user_data(context).cast::<Hooks>(), Arguments::new(context, count, values)) };
    answer(hooks, &arguments, function);
}

fn answer(
    hooks: &Hooks,
    arguments: &Arguments<'_>,
    function: impl FnOnce(&Arguments<'_>, &mut Pace<'_>) -> Result<(), Stopped>,
) {
    // What is linear looks at nothing meanwhile, but there may be thousands of calls in a row.
    if interrupted() {
        return arguments.stopped(Stopped::Interrupted);
    }
    let go_on = || !hooks.interrupted();
    match contained(|| function(arguments, &mut Pace::new(&go_on))) {
        Some(Ok(())) => {}
        Some(Err(stopped)) => arguments.stopped(stopped),
        None => arguments.error("a bug of the server's, which is in its log"),
    }
}

unsafe extern "C" fn like(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave to LIKE or GLOB, whose context is of this kind.
    let (like, arguments) =
        unsafe { (&*ffi::sqlite3_user_data(context).cast::<LikeContext>(), Arguments::new(context, count, values)) };
    if !like.marked.get() {
        // SAFETY: as above.
        like.marked.set(unsafe { mark(context, count, like) });
        arguments.integer(i64::from(like.marked.get()));
        return;
    }
    // SAFETY: the hooks live as long as the handle.
    answer(unsafe { like.hooks.as_ref() }, &arguments, |arguments, pace| {
        let pattern = arguments.bytes(0);
        if pattern.map_or(0, <[u8]>::len) > arguments.limit(ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH) {
            arguments.error("LIKE or GLOB pattern too complex");
            return Ok(());
        }
        let mut wildcards = like.wildcards;
        let mut other = u32::from(wildcards.set);
        if arguments.values.len() == 3 {
            let Some(escape) = arguments.bytes(2) else { return Ok(()) };
            if functions::character_count(escape) != 1 {
                arguments.error("ESCAPE expression must be a single character");
                return Ok(());
            }
            other = functions::first_character(escape);
            if other == u32::from(wildcards.all) {
                wildcards.all = 0;
            }
            if other == u32::from(wildcards.one) {
                wildcards.one = 0;
            }
        }
        if let (Some(pattern), Some(text)) = (pattern, arguments.bytes(1)) {
            arguments.integer(i64::from(functions::like(pattern, text, wildcards, other, pace)?));
        }
        Ok(())
    });
}

unsafe extern "C" fn instr(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave.
    unsafe {
        run(context, count, values, |arguments, _| {
            if let (Some(haystack), Some(needle)) = (arguments.bytes(0), arguments.bytes(1)) {
                let both_blobs = [0, 1].iter().all(|at| arguments.kind(*at) == ffi::SQLITE_BLOB);
                let find = if both_blobs { functions::instr_blob } else { functions::instr_text };
                arguments.integer(find(haystack, needle));
            }
            Ok(())
        });
    }
}

unsafe extern "C" fn replace(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave.
    unsafe {
        run(context, count, values, |arguments, _| {
            let Some(text) = arguments.bytes(0) else { return Ok(()) };
            let Some(pattern) = arguments.bytes(1) else { return Ok(()) };
            if pattern.first().is_none_or(|first| *first == 0) {
                arguments.text(text);
                return Ok(());
            }
            let Some(by) = arguments.bytes(2) else { return Ok(()) };
            let bytes_max = arguments.limit(ffi::SQLITE_LIMIT_LENGTH);
            let most = text.len().saturating_mul(by.len() / pattern.len() + 1).min(bytes_max);
            match memory::hold(most) {
                Some(_held) => arguments.text(&functions::replace(text, pattern, by, bytes_max)?),
                None => arguments.no_memory(),
            }
            Ok(())
        });
    }
}

fn trim(arguments: &Arguments<'_>, sides: Sides, pace: &mut Pace<'_>) -> Result<(), Stopped> {
    let Some(text) = arguments.bytes(0) else { return Ok(()) };
    let characters = if arguments.values.len() == 1 { Some(&b" "[..]) } else { arguments.bytes(1) };
    if let Some(characters) = characters {
        arguments.text(functions::trim(text, characters, sides, pace)?);
    }
    Ok(())
}

unsafe extern "C" fn trim_both(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave.
    unsafe { run(context, count, values, |arguments, pace| trim(arguments, Sides::Both, pace)) }
}

unsafe extern "C" fn trim_left(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave.
    unsafe { run(context, count, values, |arguments, pace| trim(arguments, Sides::Left, pace)) }
}

unsafe extern "C" fn trim_right(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave.
    unsafe { run(context, count, values, |arguments, pace| trim(arguments, Sides::Right, pace)) }
}

unsafe extern "C" fn unhex(context: Context, count: c_int, values: Values) {
    // SAFETY: what SQLite gave.
    unsafe {
        run(context, count, values, |arguments, pace| {
            let (Some(digits), Some(passed)) = (arguments.bytes(0), arguments.bytes(1)) else { return Ok(()) };
            let Some(_held) = memory::hold(digits.len() / 2) else {
                arguments.no_memory();
                return Ok(());
            };
            if let Some(bytes) = functions::unhex(digits, passed, pace)? {
                arguments.blob(&bytes);
            }
            Ok(())
        });
    }
}
