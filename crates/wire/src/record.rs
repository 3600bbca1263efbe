//! What a record's value holds.
