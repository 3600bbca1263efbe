//! How messages travel: frames with a length and a checksum, and the versioned hello that opens a connection.
