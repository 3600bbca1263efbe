//! The log from outside, in one binary: linking is what tests take longest for.

mod common;
mod damage;
mod faults;
mod file;
mod mem;
mod model;
mod recovery;
