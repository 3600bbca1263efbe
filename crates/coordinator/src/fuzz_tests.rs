//! Commands that nobody wrote, in bytes and on a state.

use bytes::Bytes;
use highwater_fuzz::fuzz;
use highwater_wire::{CommitRule, Epoch, Incarnation, LogId, NodeId, PartitionId, PeerId, Version};

use crate::{Command, Metadata};

fn commands() -> Vec<Command> {
    let peer = |node| PeerId { node: NodeId(node), log: LogId(u64::from(node) * 7) };
    let incarnation = Incarnation { starts: 1, random: 9 };
    let id = PartitionId(1);
    let all = vec![peer(1), peer(2), peer(3)];
    vec![
        Command::RegisterNode { peer: peer(1), incarnations: vec![incarnation], address: "127.0.0.1:8080".into() },
        Command::RegisterNode { peer: peer(2), incarnations: vec![incarnation], address: "127.0.0.1:8081".into() },
        Command::CreatePartition { id, name: "main".into(), rule: CommitRule::Isr { min: 2 }, replicas: all.clone() },
        Command::Appoint { id, version: Version(0), epoch: Epoch(1), leader: peer(1), incarnation, members: all },
        Command::ChangeSet { id, version: Version(1), epoch: Epoch(1), members: vec![peer(1), peer(2)] },
    ]
}

/// A command that reads is applied or void; the view stands either way. What is committed was proposed by a coordinator of this code, so this asks
/// for more than the protocol does.
#[test]
fn fuzz_commands() {
    let samples: Vec<Vec<u8>> = commands().iter().map(|command| command.encode().to_vec()).collect();
    fuzz(
        &samples,
        |_| {},
        |input| match Command::decode(input) {
            Ok(command) => {
                let mut metadata = Metadata::default();
                for before in commands() {
                    let _ = metadata.apply(&before);
                }
                format!("{:?} {:?}", std::mem::discriminant(&command), metadata.apply(&command))
            }
            Err(error) => error.to_string(),
        },
    );
}

#[test]
fn fuzz_batches_of_commands() {
    let samples: Vec<Vec<u8>> = commands()
        .iter()
        .map(|command| {
            let mut batch = command.batch();
            highwater_wire::batch::stamp(&mut batch, 0, Epoch(1)).expect("what was built can be stamped");
            batch.to_vec()
        })
        .collect();
    let repair = |input: &mut [u8]| {
        if input.len() >= 61 {
            let length = ((input.len() - 12) as u32).to_be_bytes();
            input[8..12].copy_from_slice(&length);
            let checksum = crc32c::crc32c(&input[21..]).to_be_bytes();
            input[17..21].copy_from_slice(&checksum);
        }
    };
    fuzz(&samples, repair, |input| match Command::read_batches(&Bytes::copy_from_slice(input)) {
        Ok(commands) => format!("{} commands", if commands.is_empty() { "no" } else { "some" }),
        Err(error) => error.to_string(),
    });
}
