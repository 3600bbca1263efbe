//! The log against a vector: whatever is appended, cut, flushed, reopened or lost in a power loss, it holds what the vector says.

use crate::common::{LOG_ID, OPTIONS, batches, flush, open, stamped};
use bytes::Bytes;
use highwater_log::mem::MemIo;
use highwater_log::{FlushDone, Log, LogStore, dump};
use highwater_wire::{Epoch, HardState, Offset, batch};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// Batches of these (records, bytes each), in an epoch that much higher.
    Append {
        raise: u32,
        sizes: Vec<(usize, usize)>,
    },
    /// Cut before the batch at this place.
    Cut(prop::sample::Index),
    BeginFlush,
    FinishFlush,
    Persist(u64),
    Read(prop::sample::Index, usize),
    /// Close in good order, and open.
    Reopen,
    /// The process dies, the machine does not.
    Kill,
    /// The power goes; the bytes choose what survives.
    Crash(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0..2u32, proptest::collection::vec((1..3usize, 0..300usize), 1..4)).prop_map(|(raise, sizes)| Step::Append { raise, sizes }),
        2 => any::<prop::sample::Index>().prop_map(Step::Cut),
        4 => Just(Step::BeginFlush),
        4 => Just(Step::FinishFlush),
        1 => any::<u64>().prop_map(Step::Persist),
        2 => (any::<prop::sample::Index>(), 0..2000usize).prop_map(|(from, most)| Step::Read(from, most)),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        2 => proptest::collection::vec(any::<u8>(), 8..60).prop_map(Step::Crash),
    ];
    proptest::collection::vec(step, 1..40)
}

/// What must be true of the log, kept beside it.
struct Model {
    io: MemIo,
    log: Option<Log<MemIo>>,
    /// (offset after it, batch).
    batches: Vec<(Offset, Bytes)>,
    epoch: u32,
    /// How many batches are certainly durable.
    durable: usize,
    hard: HardState,
    /// A flush that runs: its answer, and how many batches it covers, less what was cut since.
    running: Option<(FlushDone, usize)>,
    cuts: usize,
}

impl Model {
    fn new() -> Model {
        let io = MemIo::new();
        let log = Some(open(&io));
        Model { io, log, batches: vec![], epoch: 0, durable: 0, hard: HardState::default(), running: None, cuts: 0 }
    }

    fn log(&mut self) -> &mut Log<MemIo> {
        self.log.as_mut().expect("it is open")
    }

    fn end(&self) -> Offset {
        self.batches.last().map_or(0, |(end, _)| *end)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append { raise, sizes } => self.append(raise, &sizes),
            Step::Cut(place) => self.cut(place.index(self.batches.len() + 1)),
            Step::BeginFlush => {
                if let Some(job) = self.log().begin_flush() {
                    // The disk does its part at once; the log hears of it later.
                    self.running = Some((job.run(), self.batches.len()));
                }
            }
            Step::FinishFlush => {
                if let Some((done, covers)) = self.running.take() {
                    let flushed = self.log().finish_flush(done).expect("nothing fails");
                    let wanted = covers.checked_sub(1).map_or(0, |last| self.batches[last].0);
                    assert!(flushed >= wanted, "flushed {flushed}, and the flush covered {wanted}");
                    self.durable = self.durable.max(covers);
                    assert_eq!(flushed, self.durable_end(), "no more counts than was covered");
                }
            }
            Step::Persist(promised) => {
                self.hard.promised = Some(Epoch((promised % 1000) as u32));
                let hard = self.hard.clone();
                self.log().persist(&hard).expect("nothing fails");
            }
            Step::Read(from, most) => self.read(from.index(self.batches.len() + 1), most),
            Step::Reopen => {
                self.log.take().expect("it is open").close().expect("nothing fails");
                self.durable = self.batches.len();
                self.reopen(true);
            }
            Step::Kill => {
                self.io.kill();
                self.reopen(false);
            }
            Step::Crash(choices) => {
                let mut choices = choices.into_iter().cycle();
                let mut turn = 0usize;
                self.io.crash(|n| {
                    turn += 1;
                    (choices.next().expect("they never end") as usize + turn / 7) % n
                });
                self.reopen(false);
            }
        }
        self.check();
    }

    fn append(&mut self, raise: u32, sizes: &[(usize, usize)]) {
        self.epoch += raise;
        let mut bytes = bytes::BytesMut::new();
        for (records, size) in sizes {
            let batch = stamped(self.end(), self.epoch, *records, *size);
            bytes.extend_from_slice(&batch);
            self.batches.push((self.end() + *records as u64, batch));
        }
        let bytes = bytes.freeze();
        self.log().append(&bytes).expect("nothing fails");
    }

    fn cut(&mut self, keep: usize) {
        let to = keep.checked_sub(1).map_or(0, |last| self.batches[last].0);
        let gone: Vec<_> = self.batches.drain(keep..).map(|(_, batch)| batch).collect();
        let generation = self.log().generation();
        self.log().cut(to).expect("nothing fails");
        self.durable = self.durable.min(keep);
        if let Some((_, covers)) = &mut self.running {
            *covers = (*covers).min(keep);
        }
        if gone.is_empty() {
            return;
        }
        self.cuts += 1;
        let tails = dump::lost_tails(&self.io).expect("nothing fails");
        let tail = tails.iter().find(|tail| (tail.offset, tail.generation) == (to, generation));
        let kept: Vec<_> = dump::lost_tail(&self.io, tail.expect("what was cut is kept"))
            .map(|item| match item.expect("nothing fails") {
                dump::Item::Frame(frame) => frame.batch,
                damage => panic!("a lost tail reads: {damage:?}"),
            })
            .collect();
        assert_eq!(kept, gone, "all of it, and nothing else");
    }

    fn read(&mut self, place: usize, most: usize) {
        let end = self.end();
        let from = self.batches.get(place).map_or(end, |(after, _)| after - 1);
        let read = self.log().read(from, most).expect("nothing fails");
        if from == end {
            assert!(read.is_empty(), "there is nothing at the end");
            return;
        }
        assert!(!read.is_empty(), "at least one batch");
        let first = batch::header(&read).expect("it is a batch");
        assert!(read.len() <= most.max(first.size_bytes), "{} bytes, {most} allowed", read.len());
        let wanted: Vec<u8> = self.batches[place..].iter().flat_map(|(_, batch)| batch.to_vec()).collect();
        assert!(wanted.starts_with(&read), "the bytes that were appended");
    }

    fn reopen(&mut self, clean: bool) {
        self.log = None;
        self.running = None;
        let before = dump::verify(&self.io).expect("it reads").expect("it is there");
        let log = open(&self.io);
        let shape = log.shape().clone();
        assert_eq!(before.shape.end, shape.end, "looking and recovering see the same");
        assert_eq!(log.recovered().clean, clean, "a clean shutdown is told from a crash");
        assert_eq!(shape.flushed, shape.end, "recovery flushes what it found");
        self.log = Some(log);
        // A prefix came back, with everything durable in it.
        let kept = self.batches.iter().take_while(|(end, _)| *end <= shape.end).count();
        assert!(kept >= self.durable, "{kept} batches came back, {} were durable", self.durable);
        self.batches.truncate(kept);
        assert_eq!(self.end(), shape.end, "whole batches came back");
        if clean {
            assert_eq!(kept, self.durable, "all of it");
        }
        self.durable = kept;
        self.epoch = self.epoch.max(shape.last_epoch().map_or(0, |epoch| epoch.0));
    }

    fn durable_end(&self) -> Offset {
        self.durable.checked_sub(1).map_or(0, |last| self.batches[last].0)
    }

    fn check(&mut self) {
        let end = self.end();
        let mut epochs: Vec<(Epoch, Offset)> = Vec::new();
        for (_, bytes) in &self.batches {
            let header = batch::header(bytes).expect("it was built here");
            if epochs.last().is_none_or(|(last, _)| *last < header.epoch) {
                epochs.push((header.epoch, header.base));
            }
        }
        let hard = self.hard.clone();
        let log = self.log();
        assert_eq!((log.shape().end, &log.shape().epochs), (end, &epochs));
        assert_eq!(log.hard_state(), &hard);
        log.shape().check();
    }

    fn contents(&mut self) {
        let wanted: Vec<_> = self.batches.iter().map(|(_, batch)| batch.clone()).collect();
        for most in [0, 700, usize::MAX] {
            assert_eq!(batches(self.log(), most).expect("nothing fails"), wanted);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_log_holds_what_the_vector_says(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
            model.contents();
        }
        model.step(Step::Crash(vec![0; 8]));
        model.contents();
    }
}

/// With equal sizes, a cut leaves old frames exactly where new ones would be: they stay dead through any crash.
#[test]
fn what_was_cut_stays_dead_when_the_power_goes() {
    for survivors in 0..64usize {
        let mut io = MemIo::new();
        let mut log = open(&io);
        for base in 0..8 {
            log.append(&stamped(base, 1, 1, 100)).expect("nothing fails");
        }
        flush(&mut log).expect("nothing fails");
        log.cut(2).expect("nothing fails");
        log.append(&stamped(2, 2, 1, 100)).expect("nothing fails");
        let mut bit = 0;
        io.crash(|n| {
            bit += 1;
            (survivors >> (bit % 6)) % n
        });
        let log = open(&io);
        assert!((2..=3).contains(&log.shape().end), "{:?}", log.shape());
        assert!(log.shape().epochs.iter().all(|(epoch, first)| (epoch.0 == 2) == (*first == 2)), "{:?}", log.shape());
    }
}

/// A torn append of two batches may leave the second. A later append that ends where it begins must not bring it to life.
#[test]
fn fragments_behind_the_end_stay_dead() {
    let mut io = MemIo::new();
    let mut log = open(&io);
    let both = [stamped(0, 1, 1, 424), stamped(1, 1, 1, 424)].concat();
    log.append(&Bytes::from(both)).expect("nothing fails");
    // Both frames are longer than a sector: the first is lost, the second kept.
    let mut asked = 0;
    io.crash(|n| {
        asked += 1;
        if asked <= 1 { 0 } else { n - 1 }
    });
    let mut log = open(&io);
    assert_eq!(log.shape().end, 0);
    assert!(log.recovered().torn.is_some(), "the fragment was seen");
    log.append(&stamped(0, 2, 1, 424)).expect("nothing fails");
    drop(log);
    io.kill();
    let log = open(&io);
    assert_eq!(batches(&log, 0).expect("nothing fails"), [stamped(0, 2, 1, 424)]);
}

/// Group commit: what is appended while a flush runs shares the next one.
#[test]
fn one_flush_at_a_time_and_it_counts_for_what_was_there() {
    let io = MemIo::new();
    let mut log = open(&io);
    assert!(log.begin_flush().is_none(), "an empty log is durable");
    log.append(&stamped(0, 1, 2, 10)).expect("nothing fails");
    let job = log.begin_flush().expect("there is something to flush");
    log.append(&stamped(2, 1, 1, 10)).expect("nothing fails");
    assert!(log.begin_flush().is_none(), "one runs");
    assert_eq!(log.finish_flush(job.run()), Ok(2));
    let job = log.begin_flush().expect("the rest");
    log.cut(0).expect("nothing fails");
    log.append(&stamped(0, 2, 3, 10)).expect("nothing fails");
    assert_eq!(log.finish_flush(job.run()), Ok(0), "what the flush covered is gone");
    assert_eq!(log.shape().flushed, 0);
    assert_eq!(flush(&mut log), Ok(3));
    assert!(log.begin_flush().is_none());
}

/// A cut makes what lies below it durable, though a flush that is to do so has begun and not come back.
#[test]
fn a_cut_does_not_rely_on_a_flush_that_runs() {
    let mut io = MemIo::new();
    let mut log = open(&io);
    for base in 0..6 {
        log.append(&stamped(base, 1, 1, 300)).expect("nothing fails");
    }
    let _job = log.begin_flush().expect("there is something to flush");
    log.cut(4).expect("nothing fails");
    io.crash(|_| 0);
    assert_eq!(open(&io).shape().end, 4);
}

#[test]
fn a_log_closed_in_good_order_needs_no_recovery() {
    let mut io = MemIo::new();
    let mut log = open(&io);
    for base in 0..6 {
        log.append(&stamped(base, 1, 1, 300)).expect("nothing fails");
    }
    log.close().expect("nothing fails");
    io.crash(|_| 0);
    let log = open(&io);
    assert_eq!((log.shape().end, log.recovered().clean, log.recovered().torn), (6, true, None));
}

#[test]
fn the_newest_entries_are_shipped_from_memory_as_they_are() {
    let io = MemIo::new();
    let mut log = open(&io);
    let batch = stamped(0, 1, 1, 10);
    log.append(&batch).expect("nothing fails");
    let read = log.read(0, 10_000).expect("nothing fails");
    assert_eq!(read.as_ptr(), batch.as_ptr(), "the very bytes");
}

#[test]
#[should_panic(expected = "a cut goes between batches")]
fn a_cut_within_a_batch_is_a_bug() {
    let mut log = open(&MemIo::new());
    log.append(&stamped(0, 1, 3, 10)).expect("nothing fails");
    let _ = log.cut(1);
}

#[test]
#[should_panic(expected = "begins at the log's end")]
fn an_append_with_a_gap_is_a_bug() {
    let _ = open(&MemIo::new()).append(&stamped(1, 1, 1, 10));
}

#[test]
fn a_damaged_batch_is_never_written() {
    let io = MemIo::new();
    let mut log = open(&io);
    let mut bytes = stamped(0, 1, 1, 50).to_vec();
    bytes[90] ^= 1;
    assert!(log.append(&Bytes::from(bytes)).is_err());
    assert!(log.poisoned().is_some_and(|reason| reason.contains("checksum")), "{:?}", log.poisoned());
    assert_eq!(Log::open(io, OPTIONS, LOG_ID).expect("it opens").shape().end, 0);
}
