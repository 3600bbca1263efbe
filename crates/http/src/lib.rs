//! What clients speak: plain HTTP, Hrana, status and metrics.
#![allow(dead_code)]
mod hrana;
mod json;
