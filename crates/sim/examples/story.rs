//! Tells the stories whose names are given, or all.

use std::io::Write;

use highwater_sim::{SCENARIOS, scenario};

fn main() -> std::io::Result<()> {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout().lock();
    for one in SCENARIOS.iter().filter(|one| named.is_empty() || named.iter().any(|name| name == one.name)) {
        if let Some(Ok(text) | Err(text)) = scenario(one.name) {
            writeln!(out, "{text}")?;
        }
    }
    Ok(())
}
