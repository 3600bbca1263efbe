//! What is committed of the metadata can be read: it holds commands of the coordinator and nothing else.

use bytes::Bytes;
use highwater_coordinator::Command;
use highwater_wire::Offset;

/// What a failure is called.
pub(crate) const NAME: &str = "metadata-reads";

/// The commands of a committed batch at that offset; says what is wrong with anything else.
pub(crate) fn read(base: Offset, batch: &Bytes) -> Result<Vec<Command>, String> {
    Command::read_batches(batch).map_err(|error| format!("at offset {base}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::testing::entry;

    #[test]
    fn what_is_no_command_is_found() {
        assert!(read(0, &Bytes::new()).is_ok_and(|commands| commands.is_empty()));
        assert!(read(0, &entry(0, 0, 7)).is_err(), "a write of a database");
        assert!(read(0, &Bytes::from_static(b"neither")).is_err());
    }
}
