//! The deterministic simulator: a whole cluster of [`highwater_host::Host`]s over simulated disks, networks and clocks, driven by one seed.
//!
//! A run has two phases. In the *safety* phase, a random subset of fault classes strikes while clients work; every law of [`laws`] is checked
//! after every step. In the *liveness* phase everything is healed, and the cluster must get a leader, commit a write and catch up within stated
//! bounds. At the end the clients' own record is checked against one read of everything.
//!
//! The same crate holds named scenarios ([`scenario`]), which tell a short story with every number out of the real step functions.

#![forbid(unsafe_code)]

pub mod clients;
pub mod facts;
pub mod faults;
mod former;
pub mod laws;
pub mod machine;
pub mod marks;
pub mod model;
mod options;
pub mod oracle;
mod plan;
mod report;
pub mod rng;
mod run;
mod scenarios;
mod shrink;
pub mod trace;
mod world;

pub use former::former_seeds;
pub use options::Profile;
pub use plan::{CLIENTS, Plan, Reduction, RunOptions, Strike};
pub use report::{Report, SeedReport, Violation};
pub use run::{Progress, run, run_plot, run_seed, run_while};
pub use scenarios::{SCENARIOS, Scenario, scenario};
pub use shrink::{RUNS_MAX, Shrunk, shrink};
pub use world::Plot;
