//! Where nothing is wrong nobody is elected anew: without a fault, the metadata and the database have one leader each from beginning to end.

use crate::faults::Fault;

/// What a failure is called.
pub(crate) const NAME: &str = "calm-clusters-keep-their-leader";

/// Compares the leaders that there were with the faults. Messages that clients lose trouble no node.
pub(crate) fn check(faults: &[Fault], leaders: u64, metadata_leaders: u64) -> Result<(), String> {
    let calm = faults.iter().all(|fault| *fault == Fault::ClientLoss);
    match calm && (leaders > 1 || metadata_leaders > 1) {
        true => Err(format!("without a fault there were {leaders} leaders, and {metadata_leaders} of the metadata")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_leader_without_a_fault_is_found() {
        assert!(check(&[], 1, 1).is_ok());
        assert!(check(&[], 2, 1).is_err());
        assert!(check(&[Fault::ClientLoss], 1, 2).is_err());
        assert!(check(&[Fault::Kill], 2, 2).is_ok());
    }
}
