//! What a request asks beside its statements: when it is acknowledged, how fresh it reads, how long it waits.
//!
//! Each is a query parameter, or a header `highwater-...` for clients that cannot add parameters (a stock libSQL client with a `fetch` of its own).

use std::time::Duration;

use axum::http::HeaderMap;
use highwater_node::AckPolicy;
use highwater_wire::Position;

use crate::failure::Failure;
use crate::json::Integers;

/// How old a read may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Everything acknowledged before the request arrived is seen.
    #[default]
    Linearizable,
    /// Whatever this node has published.
    Eventual,
}

/// The options of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    pub(crate) ack: AckPolicy,
    pub(crate) freshness: Freshness,
    pub(crate) min_position: Option<Position>,
    pub(crate) wait: Option<Duration>,
    pub(crate) integers: Integers,
}

/// How long an acknowledgement is waited for if the request does not say.
pub(crate) const WAIT_DEFAULT: Duration = Duration::from_secs(10);

/// The longest wait that may be asked for.
const WAIT_MAX_MS: u64 = 60_000;

/// How long a read waits for its `min_position` if the request does not say.
pub(crate) const POSITION_WAIT_DEFAULT: Duration = Duration::from_millis(50);

impl RequestOptions {
    /// Reads them from a query string and the headers; the query wins. An unknown parameter or value is refused.
    pub(crate) fn parse(query: Option<&str>, headers: &HeaderMap) -> Result<RequestOptions, Failure> {
        let mut options = RequestOptions::default();
        for name in ["ack", "freshness", "min_position", "wait_ms", "integers"] {
            let header = format!("highwater-{}", name.replace('_', "-"));
            if let Some(value) = headers.get(&header) {
                let value = value
                    .to_str()
                    .map_err(|_| Failure::bad("OPTION_INVALID", format!("the header {header} is not text")))?;
                options.set(name, value)?;
            }
        }
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            options.set(name, &percent_decoded(value))?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let wanted = |wanted: &str| Failure::bad("OPTION_INVALID", format!("{name} must be {wanted}; found {value:?}"));
        match name {
            "ack" => {
                self.ack = match value {
                    "committed" => AckPolicy::Committed,
                    "leader" => AckPolicy::Leader,
                    _ => return Err(wanted("committed or leader")),
                }
            }
            "freshness" => {
                self.freshness = match value {
                    "linearizable" => Freshness::Linearizable,
                    "eventual" => Freshness::Eventual,
                    _ => return Err(wanted("linearizable or eventual")),
                }
            }
            "min_position" => {
                let position = value.parse().map_err(|reason: String| Failure::bad("OPTION_INVALID", reason))?;
                self.min_position = Some(position);
            }
            "wait_ms" => {
                let ms: u64 = value.parse().map_err(|_| wanted("a whole number of milliseconds, at most 60000"))?;
                if ms > WAIT_MAX_MS {
                    return Err(wanted("a whole number of milliseconds, at most 60000"));
                }
                self.wait = Some(Duration::from_millis(ms));
            }
            "integers" => {
                self.integers = match value {
                    "number" => Integers::Number,
                    "string" => Integers::String,
                    _ => return Err(wanted("number or string")),
                }
            }
            _ => {
                return Err(Failure::bad(
                    "OPTION_UNKNOWN",
                    format!(
                        "there is no parameter {name:?}; there are ack, freshness, min_position, wait_ms and integers"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// How long to wait for an acknowledgement or a confirmation of leadership.
    pub(crate) fn ack_wait(&self) -> Duration {
        self.wait.unwrap_or(WAIT_DEFAULT)
    }
}

/// Undoes `%XX` and `+`; what is not a valid escape stays as it is.
pub(crate) fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(if bytes[at] == b'+' { b' ' } else { bytes[at] });
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_from_the_query_before_the_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("highwater-ack", "leader".parse().expect("a header"));
        headers.insert("highwater-min-position", "1:0:5".parse().expect("a header"));
        let options =
            RequestOptions::parse(Some("ack=committed&freshness=eventual&wait_ms=7&integers=string"), &headers)
                .expect("good options");
        assert_eq!(options.ack, AckPolicy::Committed);
        assert_eq!(options.freshness, Freshness::Eventual);
        assert_eq!(options.wait, Some(Duration::from_millis(7)));
        assert_eq!(options.integers, Integers::String);
        assert_eq!(options.min_position, "1:0:5".parse().ok());
        assert_eq!(RequestOptions::parse(None, &HeaderMap::new()).expect("none"), RequestOptions::default());
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        for (query, wanted) in [
            ("ack=all", "committed or leader"),
            ("freshness=new", "linearizable or eventual"),
            ("min_position=7", "PARTITION:EPOCH:OFFSET"),
            ("wait_ms=-1", "milliseconds"),
            ("wait_ms=60001", "60000"),
            ("integers=text", "number or string"),
            ("akc=committed", "akc"),
        ] {
            let failure = RequestOptions::parse(Some(query), &HeaderMap::new()).expect_err(query);
            assert!(failure.message.contains(wanted), "{query}: {}", failure.message);
        }
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(percent_decoded("1%3A0%3a5+x%zz%"), "1:0:5 x%zz%");
    }
}
