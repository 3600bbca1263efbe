//! Hrana over HTTP, versions 2 and 3, JSON: what libSQL's clients speak.
//!
//! A *stream* is one logical connection. A pipeline names it by a *baton*, which every response replaces, and holds requests that run one after the
//! other; a pipeline without a baton opens a stream. A stream lives in the process that opened it: when that is gone, or when the stream idled out, the
//! answer says with a code of its own what was lost.

pub(crate) mod baton;
pub(crate) mod cursor;
pub(crate) mod pipeline;
pub(crate) mod streams;
pub(crate) mod texts;
pub(crate) mod types;
