//! SQLite's values.

/// One value. Integers are 64 bits wide; text is UTF-8.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// A 64-bit signed integer.
    Integer(i64),
    /// A double. Never NaN, which SQLite stores as NULL.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}
