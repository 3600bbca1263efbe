//! Forming a cluster.
//!
//! At its first start a node knows its peers' addresses and not their log ids. It asks all of them who they are; once everybody has answered, the list of
//! (node, log id), sorted, is the first configuration, and its hash is the cluster's number. Everybody arrives at the same list, since a log id is
//! made once and kept: a node that stops half way forms the same cluster at its next start, whatever the others have done meanwhile. A node that
//! belongs to a cluster already must name exactly the number that the list gives, or this one is refused: its folder is new in the place of one that was
//! lost, or belongs elsewhere, and must not form a cluster of its own.

use std::collections::BTreeMap;

use highwater_wire::{LogId, NodeId, PeerId};
use sha2::{Digest, Sha256};

use super::channel::dial;
use super::introduce::{Introduction, PeerRefused};
use super::tls::NodeTls;

/// Asks every node who it is until all have answered; returns the first voters and the cluster's number. `waiting` is told, whenever that changes, who is
/// still missing and why; it returns whether to go on.
pub(crate) fn gather(
    addresses: &BTreeMap<NodeId, String>,
    introduction: &Introduction,
    tls: &NodeTls,
    mut waiting: impl FnMut(&BTreeMap<NodeId, String>) -> bool,
) -> Result<Option<(Vec<PeerId>, u64)>, PeerRefused> {
    let mut known: BTreeMap<NodeId, LogId> = BTreeMap::from([(introduction.me().node, introduction.me().log)]);
    let mut clusters: BTreeMap<NodeId, u64> = BTreeMap::new();
    loop {
        let mut missing = BTreeMap::new();
        for (node, address) in addresses {
            if known.contains_key(node) {
                continue;
            }
            match ask(*node, address, introduction, tls) {
                Ok((log, cluster)) => {
                    known.insert(*node, log);
                    clusters.insert(*node, cluster);
                }
                Err(error @ (PeerRefused::SameId(_) | PeerRefused::OtherNode { .. } | PeerRefused::Codec(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    missing.insert(*node, error.to_string());
                }
            }
        }
        if missing.is_empty() {
            break;
        }
        if !waiting(&missing) {
            return Ok(None);
        }
    }
    let voters: Vec<PeerId> = known.into_iter().map(|(node, log)| PeerId { node, log }).collect();
    let cluster = number(&voters);
    match clusters.into_iter().find(|(_, theirs)| *theirs != 0 && *theirs != cluster) {
        Some((node, found)) => Err(PeerRefused::Formed { node, found }),
        None => Ok(Some((voters, cluster))),
    }
}

fn ask(node: NodeId, address: &str, introduction: &Introduction, tls: &NodeTls) -> Result<(LogId, u64), PeerRefused> {
    let (connection, proven) = dial(address, node, introduction, tls)?;
    connection.end();
    Ok((proven.hello.log, proven.hello.cluster))
}

/// The number of the cluster that these voters form; never 0.
fn number(voters: &[PeerId]) -> u64 {
    assert!(voters.windows(2).all(|pair| pair[0].node < pair[1].node), "voters are sorted, one for each node");
    let mut hash = Sha256::new();
    for voter in voters {
        hash.update(voter.node.0.to_be_bytes());
        hash.update(voter.log.0.to_be_bytes());
    }
    let digest = hash.finalize();
    u64::from_be_bytes(digest[..8].try_into().expect("a digest has more than eight bytes")).max(1)
}
