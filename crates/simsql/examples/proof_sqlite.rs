//! The simulator's example `proof`, which also knows the profile `sqlite` here.

#[path = "../../sim/examples/proof.rs"]
mod proof;

fn main() -> Result<(), String> {
    highwater_simsql::provide();
    proof::main()
}
