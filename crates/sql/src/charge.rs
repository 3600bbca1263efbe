//! The memory that a result takes, its rows and the names of its columns, and whom it is taken from.

use std::fmt;
use std::sync::Arc;

use crate::allowance::ResultRoom;
use crate::api::{Column, SqlError};
use crate::error::error;
use crate::ffi::ValueRef;
use crate::options::Options;
use crate::value::Value;

/// Room is taken in steps that grow with what was taken, between these.
const STEP_MIN_BYTES: usize = 4 << 10;
const STEP_MAX_BYTES: usize = 64 << 10;
/// What the allocator adds to each piece of memory it gives.
const ALLOCATION_BYTES: usize = 16;

/// What a result takes without columns or rows, and what is written then.
const RESULT_BYTES: usize = 512;
/// What a column takes beside its name and its type.
const COLUMN_BYTES: usize = 128;
/// How often a text that is written in one piece is there: itself, and escaped.
const WRITTEN_TIMES: usize = 7;

/// The room that a result takes. It is given back when the last clone is dropped. A charge is no part of what a result says: all are equal.
#[derive(Clone, Default)]
pub struct Charge(Option<Arc<Taken>>);

impl PartialEq for Charge {
    fn eq(&self, _: &Charge) -> bool {
        true
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.0.as_ref().map_or(0, |taken| taken.bytes))
    }
}

/// Bytes of a room; given back when dropped.
struct Taken {
    room: Arc<dyn ResultRoom>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.give_back(self.bytes);
    }
}

/// Counts the rows of a result while they are read.
pub(crate) struct Meter<'a> {
    options: &'a Options,
    taken: Option<Taken>,
    /// The values themselves, as the documents count them.
    payload: usize,
    /// The memory they take.
    memory: usize,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(options: &'a Options, room: Option<Arc<dyn ResultRoom>>) -> Meter<'a> {
        let taken = room.map(|room| Taken { room, bytes: 0 });
        Meter { options, taken, payload: 0, memory: 0 }
    }

    /// Counts a value before it is copied.
    pub(crate) fn value(&mut self, value: ValueRef<'_>) -> Result<(), SqlError> {
        let bytes = match value {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        };
        self.payload += 8 + bytes;
        if self.payload > self.options.result_bytes_max {
            let most = self.options.result_bytes_max;
            return Err(too_large(format!(
                "the rows of the result have more than {most} bytes, the most that one may"
            )));
        }
        self.memory(size_of::<Value>() + bytes + if bytes > 0 { ALLOCATION_BYTES } else { 0 })
    }

    /// Counts the names of the columns and what is written of the result beside its rows. They are written in one piece, and escaped they may be six times as long.
    pub(crate) fn columns(&mut self, columns: &[Column]) -> Result<(), SqlError> {
        let named = |column: &Column| column.name.len() + column.decl_type.as_ref().map_or(0, String::len);
        let bytes: usize = columns.iter().map(|column| COLUMN_BYTES + WRITTEN_TIMES * named(column)).sum();
        self.memory(RESULT_BYTES + bytes)
    }

    /// Counts what a row takes beside its values; `grown`: by how many rows the list of them has grown.
    pub(crate) fn row(&mut self, grown: usize) -> Result<(), SqlError> {
        self.memory(ALLOCATION_BYTES + grown * size_of::<Vec<Value>>())
    }

    fn memory(&mut self, bytes: usize) -> Result<(), SqlError> {
        self.memory += bytes;
        if self.memory > self.options.result_memory_max {
            let most = self.options.result_memory_max;
            return Err(too_large(format!(
                "the rows and column names of the result take more than {most} bytes of memory, the most that those of one may"
            )));
        }
        let Some(taken) = &mut self.taken else { return Ok(()) };
        if self.memory > taken.bytes {
            let step = (self.memory - taken.bytes).max(taken.bytes.clamp(STEP_MIN_BYTES, STEP_MAX_BYTES));
            taken.room.take(step).map_err(|refusal| error("OVERLOADED", refusal))?;
            taken.bytes += step;
        }
        Ok(())
    }

    /// The charge for exactly what was counted.
    pub(crate) fn charge(mut self) -> Charge {
        let Some(mut taken) = self.taken.take().filter(|taken| taken.bytes > 0) else { return Charge::default() };
        let spare = taken.bytes - self.memory;
        if spare > 0 {
            taken.room.give_back(spare);
            taken.bytes = self.memory;
        }
        Charge(Some(Arc::new(taken)))
    }
}

fn too_large(what: String) -> SqlError {
    error("RESPONSE_TOO_LARGE", format!("{what}: ask for less"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug)]
    struct Room(Mutex<usize>);

    impl ResultRoom for Room {
        fn take(&self, bytes: usize) -> Result<(), String> {
            let mut left = self.0.lock().expect("no panic under it");
            *left = left.checked_sub(bytes).ok_or("the room is full")?;
            Ok(())
        }

        fn give_back(&self, bytes: usize) {
            *self.0.lock().expect("no panic under it") += bytes;
        }
    }

    #[test]
    fn what_is_taken_is_given_back_with_the_last_clone_and_after_a_refusal() {
        let room = Arc::new(Room(Mutex::new(100_000)));
        let left = || *room.0.lock().expect("no panic under it");
        let options = Options::default();
        let meter = || Meter::new(&options, Some(room.clone()));
        let mut small = meter();
        small.value(ValueRef::Integer(1)).expect("there is room");
        small.row(4).expect("there is room");
        assert!(left() < 100_000);
        let charge = small.charge();
        assert_eq!(left(), 100_000 - (size_of::<Value>() + ALLOCATION_BYTES + 4 * size_of::<Vec<Value>>()));
        let clone = charge.clone();
        drop(charge);
        assert!(left() < 100_000);
        drop(clone);
        assert_eq!(left(), 100_000);

        let mut large = meter();
        let mut named = meter();
        let refused = (0..200)
            .find_map(|_| named.columns(&[Column { name: "n".repeat(500), decl_type: None }]).err())
            .expect("it is full");
        assert_eq!(refused.code, "OVERLOADED");
        drop(named);
        assert_eq!(left(), 100_000);

        let refused = (0..200).find_map(|_| large.value(ValueRef::Blob(&[0; 1000])).err()).expect("it is full");
        assert_eq!((refused.code.as_str(), refused.message.as_str()), ("OVERLOADED", "the room is full"));
        drop(large);
        assert_eq!(left(), 100_000);
    }
}
