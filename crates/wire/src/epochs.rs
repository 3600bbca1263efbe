//! What is known of a log without reading it: where it begins and ends, how far it is durable, and where each epoch's entries begin.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Offset, Rank};

/// The outline of a log.
///
/// ```text
///        base_epoch
///             v
///   (removed) | start ......... flushed ....... end
///             |   [ epoch 0 ][ epoch 2 ][ epoch 3 ]
///   epochs:       ^(0, start) ^(2, 5)   ^(3, 9)
/// ```
///
/// Laws, asserted by [`LogShape::check`]: `start <= flushed <= end`; the table's epochs and offsets both strictly rise; its first offset is
/// `start` (a table is empty exactly if the log is); `base_epoch` is at most the table's first epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogShape {
    /// The first offset still held.
    pub start: Offset,
    /// The epoch of the entry just before `start`, `None` if there never was one.
    pub base_epoch: Option<Epoch>,
    /// The next offset to be appended.
    pub end: Offset,
    /// Everything below it is durable. This is the LEO that a replica reports.
    pub flushed: Offset,
    /// (epoch, its first offset), for every epoch that has entries.
    pub epochs: Vec<(Epoch, Offset)>,
}

impl LogShape {
    /// The epoch of the entry just before `offset`; `base_epoch` at `start`.
    ///
    /// # Panics
    /// If `offset` is outside `[start, end]`.
    pub fn epoch_before(&self, offset: Offset) -> Option<Epoch> {
        assert!(self.start <= offset && offset <= self.end, "offset {offset} is outside {}..={}", self.start, self.end);
        self.epochs.iter().rev().find(|(_, first)| *first < offset).map(|(epoch, _)| *epoch).or(self.base_epoch)
    }

    /// The epoch of the last entry, flushed or not.
    pub fn last_epoch(&self) -> Option<Epoch> {
        self.epochs.last().map(|(epoch, _)| *epoch).or(self.base_epoch)
    }

    /// (epoch of the LEO, LEO), of the durable part.
    pub fn rank(&self) -> Rank {
        Rank { last_epoch: self.epoch_before(self.flushed), leo: self.flushed }
    }

    /// The greatest epoch at most `epoch` that this log has an entry of (or whose entry is the one just before `start`), and that epoch's end:
    /// the first offset of the next epoch, or the log's end. `None` if every epoch of the log is greater.
    pub fn end_of_epoch(&self, epoch: Epoch) -> Option<(Epoch, Offset)> {
        let next = self.epochs.partition_point(|(e, _)| *e <= epoch);
        let held = if next > 0 { self.epochs[next - 1].0 } else { self.base_epoch.filter(|base| *base <= epoch)? };
        Some((held, self.epochs.get(next).map_or(self.end, |(_, first)| *first)))
    }

    /// Notes entries `[end, end + count)` of `epoch`.
    ///
    /// # Panics
    /// If `count` is 0, or `epoch` is below the last one.
    pub fn append(&mut self, epoch: Epoch, count: u64) {
        assert!(count > 0, "an append has at least one entry");
        assert!(Some(epoch) >= self.last_epoch(), "an append of {epoch:?} after {:?}", self.last_epoch());
        if self.epochs.last().is_none_or(|(last, _)| *last < epoch) {
            self.epochs.push((epoch, self.end));
        }
        self.end += count;
    }

    /// Notes that everything at and above `to` is gone.
    ///
    /// # Panics
    /// If `to` is outside `[start, end]`.
    pub fn cut(&mut self, to: Offset) {
        assert!(self.start <= to && to <= self.end, "a cut at {to} outside {}..={}", self.start, self.end);
        self.end = to;
        self.flushed = self.flushed.min(to);
        self.epochs.retain(|(_, first)| *first < to);
    }

    /// Asserts the laws stated above.
    pub fn check(&self) {
        assert!(self.start <= self.flushed && self.flushed <= self.end, "start <= flushed <= end: {self:?}");
        assert!(
            self.epochs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1),
            "epochs and their offsets rise: {self:?}"
        );
        assert_eq!(self.epochs.is_empty(), self.start == self.end, "epochs exactly where there are entries: {self:?}");
        if let Some((epoch, first)) = self.epochs.first() {
            assert_eq!(*first, self.start, "the first epoch begins at the start: {self:?}");
            assert!(self.base_epoch <= Some(*epoch), "the base epoch comes first: {self:?}");
            assert!(self.epochs.last().is_some_and(|(_, last)| *last < self.end), "every epoch has an entry: {self:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(epochs: &[(u32, u64)]) -> LogShape {
        let mut shape = LogShape::default();
        for (epoch, count) in epochs {
            shape.append(Epoch(*epoch), *count);
            shape.check();
        }
        shape
    }

    #[test]
    fn the_table_answers_where_epochs_end() {
        let shape = shape(&[(0, 4), (2, 3), (3, 1)]);
        assert_eq!(shape.end_of_epoch(Epoch(0)), Some((Epoch(0), 4)));
        assert_eq!(shape.end_of_epoch(Epoch(1)), Some((Epoch(0), 4)));
        assert_eq!(shape.end_of_epoch(Epoch(2)), Some((Epoch(2), 7)));
        assert_eq!(shape.end_of_epoch(Epoch(9)), Some((Epoch(3), 8)));
        assert_eq!(LogShape::default().end_of_epoch(Epoch(9)), None);
        assert_eq!(shape.epoch_before(0), None);
        assert_eq!(shape.epoch_before(4), Some(Epoch(0)));
        assert_eq!(shape.epoch_before(5), Some(Epoch(2)));
    }

    #[test]
    fn a_cut_forgets_epochs_that_have_no_entry_left() {
        let mut shape = shape(&[(0, 4), (2, 3)]);
        shape.flushed = 6;
        shape.cut(4);
        shape.check();
        assert_eq!((shape.last_epoch(), shape.end, shape.flushed), (Some(Epoch(0)), 4, 4));
        shape.cut(0);
        shape.check();
        assert_eq!(shape.last_epoch(), None);
    }

    #[test]
    fn a_log_with_its_head_removed_still_knows_the_epoch_before_it() {
        let shape = LogShape { start: 5, base_epoch: Some(Epoch(1)), end: 6, flushed: 5, epochs: vec![(Epoch(2), 5)] };
        shape.check();
        assert_eq!(shape.epoch_before(5), Some(Epoch(1)));
        assert_eq!(shape.end_of_epoch(Epoch(1)), Some((Epoch(1), 5)));
        assert_eq!(shape.end_of_epoch(Epoch(0)), None);
        assert_eq!(shape.rank(), Rank { last_epoch: Some(Epoch(1)), leo: 5 });
    }
}
