//! The texts that a stream stores under numbers, bounded for each stream and for all.

use std::collections::BTreeMap;

use highwater_sql::SqlError;

use super::types::protocol_error;
use crate::app::Limits;
use crate::shares::Share;

/// The stored texts of one stream, with the room they take.
#[derive(Debug)]
pub(crate) struct Texts {
    texts: BTreeMap<i32, String>,
    bytes: usize,
    room: Share,
    count_max: usize,
    bytes_max: usize,
}

impl Texts {
    pub(crate) fn new(room: Share, limits: &Limits) -> Texts {
        Texts { texts: BTreeMap::new(), bytes: 0, room, count_max: limits.stored_texts, bytes_max: limits.stored_bytes }
    }

    pub(crate) fn get(&self, id: i32) -> Option<&str> {
        self.texts.get(&id).map(String::as_str)
    }

    /// Keeps a text under that number.
    ///
    /// # Errors
    /// `HRANA_PROTO_ERROR` if the number is in use, `STORED_SQL_TOO_LARGE` for the limits of a stream, `OVERLOADED` for those of all. The stream stays as it is.
    pub(crate) fn store(&mut self, id: i32, sql: String) -> Result<(), SqlError> {
        if self.texts.contains_key(&id) {
            return Err(protocol_error(format!(
                "a text is stored under sql_id {id} already; close it first with close_sql"
            )));
        }
        let refused = |code: &str, message: String| SqlError { code: code.into(), message, offset: None };
        if self.texts.len() >= self.count_max || self.bytes + sql.len() > self.bytes_max {
            return Err(refused(
                "STORED_SQL_TOO_LARGE",
                format!(
                    "a stream stores at most {} texts with {} bytes together; close those that are not used with close_sql",
                    self.count_max, self.bytes_max
                ),
            ));
        }
        self.room.grow(sql.len()).map_err(|refusal| refused("OVERLOADED", refusal.to_string()))?;
        self.bytes += sql.len();
        self.texts.insert(id, sql);
        Ok(())
    }

    /// Forgets a text; one that is not there is no matter.
    pub(crate) fn close(&mut self, id: i32) {
        if let Some(sql) = self.texts.remove(&id) {
            self.bytes -= sql.len();
            self.room.shrink(sql.len());
        }
    }
}

#[cfg(test)]
impl Texts {
    /// Some texts, with room for a few more.
    pub(crate) fn for_tests(texts: &[(i32, &str)]) -> Texts {
        use crate::party::{ClientAddress, Party, PartyId};
        let party = Party { access: crate::access::Access::Full, id: PartyId::Address(ClientAddress::default().0) };
        let room = crate::shares::Shares::new("bytes of stored texts", 100);
        let limits = Limits { stored_texts: 3, stored_bytes: 20, ..Limits::default() };
        let mut made = Texts::new(room.nothing(&party), &limits);
        for (id, text) in texts {
            made.store(*id, (*text).to_string()).expect("there is room");
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_in_number_and_size_and_closing_makes_room() {
        let mut texts = Texts::for_tests(&[(1, "a"), (2, "b"), (3, "c")]);
        let code = |refused: Result<(), SqlError>| refused.expect_err("refused").code;
        assert_eq!(code(texts.store(4, "d".into())), "STORED_SQL_TOO_LARGE", "the number");
        assert_eq!(code(texts.store(1, "d".into())), "HRANA_PROTO_ERROR");
        texts.close(1);
        texts.close(9);
        assert_eq!(code(texts.store(4, "d".repeat(19))), "STORED_SQL_TOO_LARGE", "the size");
        texts.store(4, "d".repeat(18)).expect("just so");
        assert_eq!((texts.get(4).map(str::len), texts.get(1)), (Some(18), None));
    }
}
