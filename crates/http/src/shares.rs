//! A limit with shares: so much in all, so much of it for one party, and so much for all bearers of read tokens together.
//!
//! Nobody who may only read can use up what writers need, and no single token or address can use up what the others need. Unless a limit says otherwise, one
//! party has at most three quarters of the total, all bearers of read tokens together have at most half, and one read token has three quarters of that half.
//!
//! A share is taken in a fixed order: the party's part, the readers' part, the total. Whoever waits for a later one holds only earlier ones, so nobody waits
//! in a circle, and those who wait are served in the order they came.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Semaphore;

use crate::access::Access;
use crate::failure::Failure;
use crate::party::{Party, PartyId};

/// Parties that are remembered before those that hold nothing are forgotten.
const PARTIES_SWEPT: usize = 256;

/// A limit with shares.
pub(crate) struct Shares {
    /// What is counted, as refusals name it.
    what: &'static str,
    total: usize,
    readers_max: usize,
    party_max: usize,
    all: Semaphore,
    readers: Semaphore,
    parties: Mutex<BTreeMap<PartyId, Weak<Semaphore>>>,
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shares({} of {} {})", self.taken(), self.total, self.what)
    }
}

/// Which part of a limit is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Everybody,
    Readers,
    Party(PartyId),
}

/// Why nothing was given.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    what: &'static str,
    total: usize,
    part: usize,
    whose: Whose,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { what, total, part, whose } = self;
        match whose {
            Whose::Everybody => write!(f, "{total} {what} is the limit, and it is reached")?,
            Whose::Readers => write!(
                f,
                "{total} {what} is the limit; all bearers of read tokens together may have {part} of them, and that is reached"
            )?,
            Whose::Party(PartyId::Token(_)) => {
                write!(f, "{total} {what} is the limit; one token may have {part} of them, and that is reached")?;
            }
            Whose::Party(PartyId::Address(address)) => {
                write!(
                    f,
                    "{total} {what} is the limit; one address may have {part} of them, and {address} has reached that"
                )?;
            }
        }
        f.write_str("; ask again when others have ended")
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        highwater_node::Unavailable::Overloaded(refusal.to_string()).into()
    }
}

impl Shares {
    /// A limit of `total`, with the usual shares.
    pub(crate) fn new(what: &'static str, total: usize) -> Arc<Shares> {
        Shares::with(what, total, (total * 3).div_ceil(4))
    }

    /// A limit of `total`, of which one party may have `party_max`.
    pub(crate) fn with(what: &'static str, total: usize, party_max: usize) -> Arc<Shares> {
        let readers_max = total.div_ceil(2);
        Arc::new(Shares {
            what,
            total,
            readers_max,
            party_max: party_max.min(total),
            all: Semaphore::new(total),
            readers: Semaphore::new(readers_max),
            parties: Mutex::default(),
        })
    }

    /// How much is taken by all together.
    pub(crate) fn taken(&self) -> usize {
        self.total - self.all.available_permits()
    }

    /// So much, at once or not at all.
    pub(crate) fn take(self: &Arc<Shares>, party: &Party, amount: usize) -> Result<Share, Refusal> {
        let mut share = self.nothing(party);
        share.grow(amount)?;
        Ok(share)
    }

    /// A share of nothing yet, which may grow.
    pub(crate) fn nothing(self: &Arc<Shares>, party: &Party) -> Share {
        Share { party: self.part_of(party), access: party.access, id: party.id, amount: 0, of: self.clone() }
    }

    /// One, as soon as there is one; whoever came first is served first.
    pub(crate) async fn wait_for_one(self: &Arc<Shares>, party: &Party) -> Share {
        let mut share = self.nothing(party);
        let own = share.party.acquire().await.expect("these are never closed");
        let readers = match share.access == Access::Read {
            true => Some(self.readers.acquire().await.expect("these are never closed")),
            false => None,
        };
        self.all.acquire().await.expect("these are never closed").forget();
        if let Some(readers) = readers {
            readers.forget();
        }
        own.forget();
        share.amount = 1;
        share
    }

    /// The most that one party has.
    fn part_max(&self, access: Access) -> usize {
        match access {
            Access::Full => self.party_max,
            Access::Read => self.party_max.min((self.readers_max * 3).div_ceil(4)),
        }
    }

    fn part_of(&self, party: &Party) -> Arc<Semaphore> {
        let id = party.id;
        let mut parties = self.parties.lock().expect("no holder of this lock panics");
        if let Some(part) = parties.get(&id).and_then(Weak::upgrade) {
            return part;
        }
        if parties.len() >= PARTIES_SWEPT {
            parties.retain(|_, part| part.strong_count() > 0);
        }
        let part = Arc::new(Semaphore::new(self.part_max(party.access)));
        parties.insert(id, Arc::downgrade(&part));
        part
    }
}

/// What one party has of a limit, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Arc<Shares>,
    party: Arc<Semaphore>,
    access: Access,
    id: PartyId,
    amount: usize,
}

impl Share {
    /// How much it is.
    pub(crate) fn amount(&self) -> usize {
        self.amount
    }

    /// Takes so much more, or nothing.
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), Refusal> {
        let of = &self.of;
        let refused = |part, whose| Refusal { what: of.what, total: of.total, part, whose };
        let everybody = || refused(of.total, Whose::Everybody);
        let permits = u32::try_from(more).map_err(|_| everybody())?;
        let own = self
            .party
            .try_acquire_many(permits)
            .map_err(|_| refused(of.part_max(self.access), Whose::Party(self.id)))?;
        let readers = match self.access == Access::Read {
            true => Some(of.readers.try_acquire_many(permits).map_err(|_| refused(of.readers_max, Whose::Readers))?),
            false => None,
        };
        of.all.try_acquire_many(permits).map_err(|_| everybody())?.forget();
        if let Some(readers) = readers {
            readers.forget();
        }
        own.forget();
        self.amount += more;
        Ok(())
    }

    /// Gives back so much, at most all there is.
    pub(crate) fn shrink(&mut self, less: usize) {
        let less = less.min(self.amount);
        self.amount -= less;
        self.of.all.add_permits(less);
        if self.access == Access::Read {
            self.of.readers.add_permits(less);
        }
        self.party.add_permits(less);
    }

    /// Grows or shrinks to that much.
    pub(crate) fn set(&mut self, amount: usize) -> Result<(), Refusal> {
        match amount.checked_sub(self.amount) {
            Some(more) => self.grow(more),
            None => {
                self.shrink(self.amount - amount);
                Ok(())
            }
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink(self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(access: Access, token: u8) -> Party {
        Party { access, id: PartyId::Token([token; 32]) }
    }

    #[test]
    fn one_party_has_three_quarters_and_readers_have_half() {
        let shares = Shares::new("things", 8);
        let (writer, other) = (party(Access::Full, 1), party(Access::Full, 2));
        let mut first = shares.take(&writer, 6).expect("three quarters");
        let refused = first.grow(1).expect_err("the share of one token").to_string();
        assert!(refused.contains("8 things") && refused.contains("one token may have 6"), "{refused}");
        let second = shares.take(&other, 2).expect("the rest is for others");
        let refused = shares.take(&other, 1).expect_err("all").to_string();
        assert!(refused.contains("8 things is the limit, and it is reached"), "{refused}");
        drop((first, second));
        let readers: Vec<Share> =
            (3..=6).map(|token| shares.take(&party(Access::Read, token), 1).expect("half")).collect();
        let refused = shares.take(&party(Access::Read, 9), 1).expect_err("the share of readers").to_string();
        assert!(refused.contains("all bearers of read tokens together may have 4"), "{refused}");
        assert!(shares.take(&writer, 4).is_ok(), "readers do not lock out a writer");
        drop(readers);
        assert_eq!(shares.taken(), 0);
    }

    #[test]
    fn a_share_grows_and_shrinks_and_a_refusal_takes_nothing() {
        let shares = Shares::new("bytes", 100);
        let mut share = shares.nothing(&party(Access::Read, 1));
        share.set(38).expect("three quarters of half");
        let refused = share.grow(1).expect_err("the share of one read token").to_string();
        assert!(refused.contains("one token may have 38"), "{refused}");
        assert!(shares.take(&party(Access::Read, 2), 12).is_ok(), "one reader does not lock out another");
        assert_eq!(shares.taken(), 38);
        share.set(10).expect("less is always to be had");
        assert_eq!(shares.taken(), 10);
        drop(share);
        assert_eq!((shares.taken(), shares.readers.available_permits()), (0, 50));
        assert!(Shares::new("things", 1).take(&party(Access::Read, 1), 1).is_ok(), "one is one for everybody");
        assert!(Shares::new("things", 0).take(&party(Access::Full, 1), 1).is_err());
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_next_one() {
        let shares = Shares::new("threads", 4);
        let reader = party(Access::Read, 1);
        let held = [shares.wait_for_one(&reader).await, shares.wait_for_one(&reader).await];
        let mut third = std::pin::pin!(shares.wait_for_one(&reader));
        assert!(futures_now(third.as_mut()).await.is_none(), "readers have half");
        let _writer = shares.wait_for_one(&party(Access::Full, 2)).await;
        drop(held);
        assert!(futures_now(third.as_mut()).await.is_some());
    }

    /// What a future gives if it is asked once.
    async fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = std::future::ready(()) => None,
        }
    }
}
