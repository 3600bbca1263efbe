//! Which PRAGMAs run, which hold for a stream, which are answered and change nothing, which are replicated, and which are refused.

/// What becomes of a PRAGMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PragmaPolicy {
    /// It only tells something.
    Informational,
    /// It sets or tells something of this connection: it runs as it is, and holds for the stream.
    Connection,
    /// It is answered with this value, or with nothing, and changes nothing.
    Idle(Option<String>),
    /// It changes the database and is shipped as a statement.
    Replicated,
    /// It is refused, with the reason.
    Refused(String),
}

const INFORMATIONAL: [&str; 16] = [
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_key_check",
    "database_list",
    "collation_list",
    "function_list",
    "module_list",
    "pragma_list",
    "compile_options",
    "integrity_check",
    "quick_check",
];

/// Told when asked without an argument; setting them is another matter.
const TOLD: [&str; 8] = [
    "schema_version",
    "data_version",
    "freelist_count",
    "page_count",
    "page_size",
    "encoding",
    "max_page_count",
    "auto_vacuum",
];

/// Hold for a stream, and are set before BEGIN as in SQLite.
pub(crate) const PER_STREAM: [&str; 5] =
    ["foreign_keys", "defer_foreign_keys", "recursive_triggers", "legacy_alter_table", "case_sensitive_like"];

/// How storage and speed are set is decided for all connections, so these change nothing. Setting the second kind answers the value, as SQLite does.
const IDLE_SILENT: [&str; 12] = [
    "synchronous",
    "cache_size",
    "cache_spill",
    "temp_store",
    "page_size",
    "encoding",
    "auto_vacuum",
    "optimize",
    "shrink_memory",
    "automatic_index",
    "fullfsync",
    "checkpoint_fullfsync",
];
const IDLE_ECHOING: [&str; 6] =
    ["busy_timeout", "mmap_size", "wal_autocheckpoint", "journal_size_limit", "secure_delete", "max_page_count"];

/// What becomes of a PRAGMA (its name in lower case) with this argument.
pub(crate) fn policy(name: &str, argument: Option<&str>) -> PragmaPolicy {
    if INFORMATIONAL.contains(&name) {
        return PragmaPolicy::Informational;
    }
    if PER_STREAM.contains(&name) {
        return PragmaPolicy::Connection;
    }
    match (name, argument) {
        ("user_version" | "application_id", Some(_)) => PragmaPolicy::Replicated,
        ("user_version" | "application_id", None) => PragmaPolicy::Informational,
        ("journal_mode", _) => PragmaPolicy::Idle(Some("wal".to_string())),
        ("locking_mode", _) => PragmaPolicy::Idle(Some("normal".to_string())),
        (name, None) if TOLD.contains(&name) => PragmaPolicy::Informational,
        // What SQLite would say of its own settings is what the connection has.
        ("synchronous" | "cache_size" | "busy_timeout" | "temp_store" | "mmap_size" | "cache_spill", None) => {
            PragmaPolicy::Informational
        }
        (name, Some(value)) if IDLE_ECHOING.contains(&name) => PragmaPolicy::Idle(Some(value.to_string())),
        (name, _) if IDLE_SILENT.contains(&name) || IDLE_ECHOING.contains(&name) => PragmaPolicy::Idle(None),
        (name, _) => PragmaPolicy::Refused(format!(
            "PRAGMA {name} is refused: it would change this database for others, or on this replica alone"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_pragma_has_its_policy() {
        assert_eq!(policy("table_info", Some("t")), PragmaPolicy::Informational);
        assert_eq!(policy("foreign_keys", Some("off")), PragmaPolicy::Connection);
        assert_eq!(policy("journal_mode", Some("delete")), PragmaPolicy::Idle(Some("wal".to_string())));
        assert_eq!(policy("synchronous", Some("off")), PragmaPolicy::Idle(None));
        assert_eq!(policy("busy_timeout", Some("5000")), PragmaPolicy::Idle(Some("5000".to_string())));
        assert_eq!(policy("user_version", Some("3")), PragmaPolicy::Replicated);
        assert_eq!(policy("user_version", None), PragmaPolicy::Informational);
        for name in ["writable_schema", "wal_checkpoint", "ignore_check_constraints", "trusted_schema", "query_only"] {
            assert!(matches!(policy(name, Some("on")), PragmaPolicy::Refused(reason) if reason.contains(name)));
        }
        assert!(matches!(policy("schema_version", Some("7")), PragmaPolicy::Refused(_)));
    }
}
