//! Every acknowledged write answered what carrying it out in the order of the journal answers.
//!
//! Not so a write that its leader alone acknowledged: what it answered from may be lost, and an earlier attempt of the same write, whose leader had others' entries
//! before it, may be what is committed in the end.

use crate::clients::{Ask, End, Final, History};
use crate::machine::{Entry, NOWHERE, State};

/// See the module.
pub(super) fn check(history: &History, last: &Final) -> Result<(), String> {
    let mut state = State::default();
    for op in &last.journal {
        // What nobody asked for is another law's matter.
        let Some(call) = history.call(*op) else { continue };
        let Some(entry) = call.entry() else { continue };
        // Without its key, so that a second effect shows as one.
        let answer = state
            .apply(&Entry { keyed: false, ..*entry }, NOWHERE)
            .map_err(|error| format!("in the journal's order, {error}"))?;
        let held = !matches!(call.ask, Ask::Write { leader_ack: true, .. });
        match call.end {
            End::Wrote { answer: told, .. } if held && told != answer => {
                return Err(format!(
                    "{op:?} was answered {told:?}, and in the journal's order the answer is {answer:?}"
                ));
            }
            _ => {}
        }
    }
    match (0..=u8::MAX)
        .find(|key| state.register(*key) != last.state.register(*key) || state.list(*key) != last.state.list(*key))
    {
        None => Ok(()),
        Some(key) => Err(format!("register or list {key} is not what the journal's effects add up to")),
    }
}

#[cfg(test)]
mod tests {
    use highwater_wire::Epoch;

    use super::*;
    use crate::clients::Call;
    use crate::laws::testing::{call, ends, history, position};
    use crate::machine::{OpId, Write, WriteAnswer};

    fn append(op: u64, len: u64) -> Call {
        let entry = Entry { op: OpId(op), keyed: false, write: Write::Append { list: 1, value: op } };
        let end = End::Wrote { answer: WriteAnswer::Appended { len }, at: position(op) };
        call(op, 0, op * 10, Ask::Write { entry, leader_ack: false }, end)
    }

    fn list(ops: &[u64]) -> Final {
        let mut state = State::default();
        for op in ops {
            let entry = Entry { op: OpId(*op), keyed: false, write: Write::Append { list: 1, value: *op } };
            state.apply(&entry, NOWHERE).unwrap();
        }
        Final::new(state)
    }

    #[test]
    fn an_answer_of_a_leader_alone_may_be_lost_with_what_it_saw() {
        let mut alone = append(1, 1);
        if let Ask::Write { leader_ack, .. } = &mut alone.ask {
            *leader_ack = true;
        }
        assert!(check(&history(&[alone, append(2, 1)]), &list(&[2, 1])).is_ok());
        assert!(check(&history(&[append(1, 1), append(2, 1)]), &list(&[2, 1])).is_err());
    }

    #[test]
    fn an_answer_from_another_order_is_found() {
        assert_eq!(position(1).epoch, Some(Epoch(0)));
        let calls = history(&[append(1, 1), append(2, 2)]);
        assert!(check(&calls, &list(&[1, 2])).is_ok());
        assert!(check(&calls, &list(&[2, 1])).is_err());
        assert!(check(&history(&[]), &ends(&[])).is_ok());
    }
}
