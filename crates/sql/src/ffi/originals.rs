//! SQLite's own functions behind ours: some are only kept from being given too much, and then do their work themselves.
//!
//! SQLite's interface does not tell where its functions are. They are looked up once per process: a function of ours is called in a statement that calls each
//! of them as well, and finds their definitions in the statement's program. Whatever is read on the way is laid out as in the one version of SQLite that
//! this was made for, and looked at where it can be: if anything differs, no database is opened.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use rusqlite::ffi;

use super::conn::{Conn, Failure};
use super::functions::{Context, Function, Values};

/// The version that the structures below are those of.
const SOURCE: &CStr = c"2026-10-16 14:45:20 555e07ef33f69a0957d24d8e555b702464a131d6f1607f4c3c1e4551e8e6ca76";

/// SQLite's `struct FuncDef`.
#[repr(C)]
pub(super) struct FuncDef {
    pub(super) arguments: i16,
    pub(super) flags: u32,
    pub(super) user_data: *mut c_void,
    next: *mut c_void,
    function: Option<Function>,
    finalize: *mut c_void,
    value: *mut c_void,
    inverse: *mut c_void,
    name: *const c_char,
}

/// The beginning of SQLite's `struct sqlite3_context`.
#[repr(C)]
pub(super) struct ContextLayout {
    out: *mut c_void,
    pub(super) definition: *mut FuncDef,
    memory: *mut c_void,
    pub(super) program: *mut Program,
    at: c_int,
}

/// The beginning of SQLite's `struct Vdbe`, words of which only these matter.
#[repr(C)]
pub(super) struct Program {
    db: *mut ffi::sqlite3,
    between: [*mut c_void; 16],
    ops: *mut Op,
    count: c_int,
}

/// SQLite's `struct VdbeOp`.
#[repr(C)]
struct Op {
    opcode: u8,
    kind: i8,
    flags: u16,
    operands: [c_int; 3],
    context: *mut ContextLayout,
}

/// A function of SQLite's.
#[derive(Clone, Copy)]
pub(super) struct Original {
    pub(super) function: Function,
    /// What it finds in the context, which is a number.
    pub(super) user_data: usize,
    pub(super) flags: u32,
}

/// Those that are called from ours, in the order of `NAMES`.
pub(super) const NAMES: [&CStr; 22] = [
    c"json_array",
    c"jsonb_array",
    c"json_array_insert",
    c"jsonb_array_insert",
    c"json_extract",
    c"jsonb_extract",
    c"json_insert",
    c"jsonb_insert",
    c"json_object",
    c"jsonb_object",
    c"json_remove",
    c"jsonb_remove",
    c"json_replace",
    c"jsonb_replace",
    c"json_set",
    c"jsonb_set",
    c"json_patch",
    c"jsonb_patch",
    c"concat",
    c"concat_ws",
    c"json_pretty",
    c"json_pretty",
];

static FOUND: OnceLock<[Original; NAMES.len()]> = OnceLock::new();

/// The original of a name, by its place. Only called by what was installed after they were found.
pub(super) fn original(place: usize) -> Original {
    FOUND.get().expect("found before any function of ours was installed")[place]
}

/// What is said if SQLite is not as it is expected to be.
pub(super) fn differs() -> Failure {
    Failure {
        code: ffi::SQLITE_INTERNAL,
        message: "this is another version of SQLite than our functions were made for".to_string(),
        offset: None,
    }
}

/// All of them; looked up with a connection on which none is replaced yet.
pub(super) fn find(conn: &Conn) -> Result<&'static [Original; NAMES.len()], Failure> {
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    // SAFETY: SQLite gives a NUL-terminated string that stays.
    if unsafe { CStr::from_ptr(ffi::sqlite3_sourceid()) } != SOURCE {
        return Err(differs());
    }
    let mut found: Vec<Original> = Vec::with_capacity(NAMES.len());
    // SAFETY: the name is NUL-terminated; the context is used within `query_integer` alone, during which it lives.
    let code = unsafe {
        ffi::sqlite3_create_function_v2(
            conn.raw(),
            c"highwater_find".as_ptr(),
            1,
            ffi::SQLITE_UTF8,
            ptr::from_mut(&mut found).cast(),
            Some(look),
            None,
            None,
            None,
        )
    };
    if code != ffi::SQLITE_OK {
        return Err(conn.failure(code));
    }
    let calls: Vec<String> = NAMES.iter().map(|name| format!("{}(?1, ?2)", name.to_string_lossy())).collect();
    let (stmt, _) = conn.prepare(&format!("SELECT highwater_find(?1), {}", calls.join(",")), false)?;
    let mut stmt = stmt.expect("statements of our own are not empty");
    // The others have nothing to work on, and one that complains comes after ours.
    let stepped = stmt.step();
    drop(stmt);
    // SAFETY: no statement that calls it is left.
    unsafe {
        ffi::sqlite3_create_function_v2(
            conn.raw(),
            c"highwater_find".as_ptr(),
            1,
            ffi::SQLITE_UTF8,
            ptr::null_mut(),
            None,
            None,
            None,
            None,
        )
    };
    match found.try_into() {
        Ok(found) => Ok(FOUND.get_or_init(|| found)),
        Err(_) => Err(stepped.err().unwrap_or_else(differs)),
    }
}

unsafe extern "C" fn look(context: Context, _: c_int, _: Values) {
    // SAFETY: the version is the one of the structures above, and the build options that would change them are looked at by what they would change: the
    // program's connection, our own definition, and the place of our own call in the program. Only then are other calls of the program looked at.
    unsafe {
        let found = &mut *ffi::sqlite3_user_data(context).cast::<Vec<Original>>();
        let layout = context.cast::<ContextLayout>();
        let (definition, program) = ((*layout).definition, (*layout).program);
        if (*definition).user_data != ffi::sqlite3_user_data(context)
            || (*program).db != ffi::sqlite3_context_db_handle(context)
        {
            return;
        }
        let at = (*layout).at.max(0) as usize;
        let ops = std::slice::from_raw_parts((*program).ops, (*program).count.max(0) as usize);
        let Some(own) = ops.get(at).filter(|own| own.context == layout) else { return };
        for name in NAMES {
            let calls = ops.iter().filter(|op| op.kind == own.kind && op.opcode != 0 && !op.context.is_null());
            let found_one = calls.map(|op| &*(*op.context).definition).find(|one| CStr::from_ptr(one.name) == name);
            let Some(FuncDef { function: Some(function), user_data, flags, .. }) = found_one else { return };
            found.push(Original { function: *function, user_data: *user_data as usize, flags: *flags });
        }
    }
}
