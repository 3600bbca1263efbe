//! SQLite's JSON functions, and `concat`, kept from being given so much that one call would run for long: they do not look at the clock.
//!
//! What they do grows with the product of what they are given: each path is looked for in the whole text, each key of a patch among all keys.

use std::ffi::c_int;
use std::ptr;

use rusqlite::ffi;

use super::conn::{Conn, Failure};
use super::functions::{Context, Function, Values};
use super::originals::{self, ContextLayout, NAMES, Original};
use super::running::interrupted;
use super::stmt::slice;
use crate::functions;

/// The length of the text times the number of paths, with all values; or what `json_pretty` indents by (64 MiB).
const READ_BYTES_MAX: u64 = 64 << 20;
/// All values of an array or object to be made (32 MiB), which may have 16 MiB.
const VALUES_BYTES_MAX: u64 = 32 << 20;
/// The product of the lengths of a text and its patch (the square of 128 KiB); one of them may always be short.
const PATCH_PRODUCT_MAX: u64 = 1 << 34;

/// What SQLite allows to be passed on: SQLITE_SUBTYPE and SQLITE_RESULT_SUBTYPE.
const PASSED_ON: u32 = 0x0010_0000 | 0x0100_0000;

/// How a function's work grows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// With its values.
    Values,
    /// With the first value, once for each of the others.
    Paths,
    /// With the first value, once for every two of the others.
    Pairs,
    /// With the product of both.
    Product,
    /// With the lines that the first becomes and how far they are indented.
    Lines,
    /// With the values, of which it makes one.
    Joined,
    /// With the values and as often with the first, which it puts between the others.
    JoinedBy,
}

fn growth(name: &str) -> Growth {
    match name.trim_start_matches("json_").trim_start_matches("jsonb_") {
        "array" | "object" => Growth::Values,
        "extract" | "remove" => Growth::Paths,
        "patch" => Growth::Product,
        "pretty" => Growth::Lines,
        "concat" => Growth::Joined,
        "concat_ws" => Growth::JoinedBy,
        _ => Growth::Pairs,
    }
}

/// Puts ours in place of SQLite's.
pub(super) fn install(conn: &Conn) -> Result<(), Failure> {
    const OURS: [Function; NAMES.len()] = [
        call::<0>, call::<1>, call::<2>, call::<3>, call::<4>, call::<5>, call::<6>, call::<7>, call::<8>, call::<9>,
        call::<10>, call::<11>, call::<12>, call::<13>, call::<14>, call::<15>, call::<16>, call::<17>, call::<18>,
        call::<19>, call::<20>, call::<21>,
    ];
    let found = originals::find(conn)?;
    for (place, ((name, ours), original)) in NAMES.iter().zip(OURS).zip(found).enumerate() {
        let arguments = match name.to_bytes() {
            b"json_patch" | b"jsonb_patch" => 2,
            b"json_pretty" => 1 + i32::from(place == NAMES.len() - 1),
            _ => -1,
        };
        let flags = ffi::SQLITE_UTF8 | ffi::SQLITE_DETERMINISTIC | ffi::SQLITE_INNOCUOUS;
        // SAFETY: the name is NUL-terminated. The context is the number that the original finds in its own.
        let code = unsafe {
            ffi::sqlite3_create_function_v2(
                conn.raw(),
                name.as_ptr(),
                arguments,
                flags | (original.flags & PASSED_ON) as c_int,
                ptr::without_provenance_mut(original.user_data),
                Some(ours),
                None,
                None,
                None,
            )
        };
        if code != ffi::SQLITE_OK {
            return Err(conn.failure(code));
        }
    }
    Ok(())
}

/// # Safety
/// The context of a call.
unsafe fn fail(context: Context, message: &str) {
    // SAFETY: SQLite copies so many bytes of the message.
    unsafe { ffi::sqlite3_result_error(context, message.as_ptr().cast(), message.len() as c_int) };
}

unsafe extern "C" fn call<const PLACE: usize>(context: Context, count: c_int, values: Values) {
    let Original { function, .. } = originals::original(PLACE);
    let arguments = count.max(0) as usize;
    // SAFETY: what SQLite gave. While a query is planned, functions are called outside a program, which SQLite spares its own: an estimate is missed then.
    unsafe {
        if (*context.cast::<ContextLayout>()).program.is_null() {
            ffi::sqlite3_result_null(context);
            return;
        }
        if interrupted() {
            ffi::sqlite3_result_error_code(context, ffi::SQLITE_INTERRUPT);
            return;
        }
        let bytes = |at: usize| ffi::sqlite3_value_bytes(*values.add(at)).max(0) as u64;
        let others = arguments.saturating_sub(1) as u64;
        let all = || (0..arguments).map(bytes).sum::<u64>();
        let name = NAMES[PLACE].to_str().unwrap_or_default();
        let growth = growth(name);
        let (work, most) = match growth {
            Growth::Joined | Growth::JoinedBy => {
                let first = usize::from(growth == Growth::JoinedBy);
                if arguments <= first {
                    return fail(context, &format!("wrong number of arguments to function {name}()"));
                }
                // SQLite makes room for all of it before it looks whether a value may have so much.
                let there = |at: &usize| ffi::sqlite3_value_type(*values.add(*at)) != ffi::SQLITE_NULL;
                let count = (first..arguments).filter(there).count() as u64;
                let between = if first == 1 { bytes(0) * count.saturating_sub(1) } else { 0 };
                let limit = ffi::sqlite3_limit(ffi::sqlite3_context_db_handle(context), ffi::SQLITE_LIMIT_LENGTH, -1);
                if (first..arguments).filter(there).map(bytes).sum::<u64>() + between > limit.max(0) as u64 {
                    ffi::sqlite3_result_error_toobig(context);
                    return;
                }
                (0, 0)
            }
            Growth::Lines if arguments > 0 => {
                let is_blob = ffi::sqlite3_value_type(*values) == ffi::SQLITE_BLOB;
                let start =
                    if is_blob { ffi::sqlite3_value_blob(*values).cast() } else { ffi::sqlite3_value_text(*values) };
                let json = slice(start, ffi::sqlite3_value_bytes(*values));
                let by_default = arguments < 2 || ffi::sqlite3_value_type(*values.add(1)) == ffi::SQLITE_NULL;
                let indent = if by_default { 4 } else { bytes(1) };
                (functions::indentation(json, is_blob, indent), READ_BYTES_MAX)
            }
            // One value, or none, costs what any function costs.
            _ if arguments < 2 => (0, 0),
            Growth::Values => (all(), VALUES_BYTES_MAX),
            Growth::Paths => (bytes(0) * others + all(), READ_BYTES_MAX),
            Growth::Pairs => (bytes(0) * others.div_ceil(2) + all(), READ_BYTES_MAX),
            Growth::Product => (bytes(0) * bytes(1), PATCH_PRODUCT_MAX),
            Growth::Lines => (0, 0),
        };
        if work > most {
            return fail(
                context,
                &format!(
                    "{name} was given too much: its work would be {work}, where {most} is allowed. Give it shorter values, or fewer at a time"
                ),
            );
        }
        function(context, count, values);
    }
}
