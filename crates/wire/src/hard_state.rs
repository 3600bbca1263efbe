//! What a replica must remember over restarts beside its log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Incarnation, Offset, PeerId};

/// A replica's durable promises and hints. It is replaced as a whole, and is durable before anything that depends on it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HardState {
    /// The highest epoch promised or entered. Nothing of an epoch below it is ever sent, followed or led again.
    pub promised: Option<Epoch>,
    /// In the self-electing partition: to whom `promised` was promised. One candidate for each epoch.
    pub promised_to: Option<PeerId>,
    /// The greatest lossy epoch heard of. It alone excuses cutting below an HW that was learned before it.
    pub lossy: Option<Epoch>,
    /// The last HW known when this was written, and the epoch it was learned in: a hint for the truncation law and for reading sooner, never
    /// needed for correctness.
    pub hw_hint: (Offset, Option<Epoch>),
    /// In the self-electing partition: the newest incarnation seen of every other voter. An older one is refused: its folder is an older copy.
    pub seen: BTreeMap<PeerId, Incarnation>,
}
