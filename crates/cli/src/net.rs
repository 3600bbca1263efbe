//! The network between the nodes of a cluster on this machine, in this process, so that it can be cut: each node reaches each other one through a proxy of its own.
//!
//! A cut is of one direction between two nodes and concerns every byte that would travel that way, answers on connections from the other side included.
//! A new connection needs both directions, as TCP's handshake does; one that is not to be had yet waits for healing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// From a node to another one.
pub(crate) type Way = (u32, u32);

/// How a way is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Bytes wait and arrive after healing, as they do where packets are lost: no connection ends.
    Silent,
    /// The same, and connections that were made this way end at once.
    Broken,
    /// Connections that were made this way end at once, and new ones are refused, as if the other process were gone.
    Refused,
}

#[derive(Default)]
struct State {
    cuts: BTreeMap<Way, Cut>,
    /// Both ends of each connection, by the way it was made.
    open: BTreeMap<(Way, u64), Vec<TcpStream>>,
    listening: BTreeSet<Way>,
    made: u64,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// All proxies. Dropping it ends every connection.
pub(crate) struct Net {
    shared: Arc<Shared>,
    proxies: BTreeMap<Way, SocketAddr>,
}

impl Net {
    /// Proxies between all these nodes, at addresses that nobody listens on.
    pub(crate) fn new(nodes: &BTreeMap<u32, SocketAddr>, mut free_address: impl FnMut() -> SocketAddr) -> Net {
        let shared = Arc::new(Shared::default());
        let mut proxies = BTreeMap::new();
        for from in nodes.keys() {
            for (to, target) in nodes.iter().filter(|(to, _)| *to != from) {
                let (way, address, target) = ((*from, *to), free_address(), *target);
                let listener = TcpListener::bind(address).expect("a free port can be listened on");
                shared.lock().listening.insert(way);
                proxies.insert(way, address);
                let shared = shared.clone();
                std::thread::spawn(move || shared.listen(way, listener, target));
            }
        }
        Net { shared, proxies }
    }

    /// Where the first of the two nodes reaches the second.
    pub(crate) fn address(&self, way: Way) -> SocketAddr {
        self.proxies[&way]
    }

    /// Cuts a way, until it is healed. When this returns nothing travels that way any more, but for what has been handed to a socket already.
    pub(crate) fn cut(&self, way: Way, cut: Cut) {
        let mut state = self.shared.lock();
        state.cuts.insert(way, cut);
        if cut != Cut::Silent {
            for ((_, _), ends) in state.open.range((way, 0)..=(way, u64::MAX)) {
                ends.iter().for_each(end);
            }
        }
        self.shared.changed.notify_all();
        if cut == Cut::Refused {
            drop(state);
            // Whoever accepts there sees by this connection that it should not.
            let _ = TcpStream::connect(self.proxies[&way]);
            drop(self.shared.wait(|state| !state.listening.contains(&way)));
        }
    }

    /// Cuts both ways between two nodes.
    pub(crate) fn part(&self, one: u32, other: u32, cut: Cut) {
        self.cut((one, other), cut);
        self.cut((other, one), cut);
    }

    /// Heals everything. What waited travels on.
    pub(crate) fn heal(&self) {
        self.shared.lock().cuts.clear();
        self.shared.changed.notify_all();
        let all = self.proxies.len();
        drop(self.shared.wait(|state| state.listening.len() == all));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        state.open.values().flatten().for_each(end);
        drop(state);
        self.shared.changed.notify_all();
        for address in self.proxies.values() {
            let _ = TcpStream::connect(address);
        }
    }
}

/// Ends a connection; one that has ended already is as good.
fn end(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

fn back((from, to): Way) -> Way {
    (to, from)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.changed.wait_while(self.lock(), |state| !until(state) && !state.ended);
        waited.expect("no holder of this lock panics")
    }

    fn listen(self: Arc<Self>, way: Way, first: TcpListener, target: SocketAddr) {
        let address = first.local_addr().expect("a bound listener has an address");
        let mut listener = Some(first);
        loop {
            let accepting = match listener.take() {
                Some(listener) => listener,
                None => TcpListener::bind(address).expect("the port is still free"),
            };
            self.lock().listening.insert(way);
            self.changed.notify_all();
            while let Ok((stream, _)) = accepting.accept() {
                let mut state = self.lock();
                if state.ended {
                    return;
                }
                if state.cuts.get(&way) == Some(&Cut::Refused) {
                    break;
                }
                state.made += 1;
                let key = (way, state.made);
                state.open.insert(key, vec![stream.try_clone().expect("a socket can be shared")]);
                drop(state);
                let shared = self.clone();
                std::thread::spawn(move || shared.carry(key, &stream, target));
            }
            drop(accepting);
            self.lock().listening.remove(&way);
            self.changed.notify_all();
            if self.wait(|state| state.cuts.get(&way) != Some(&Cut::Refused)).ended {
                return;
            }
        }
    }

    /// One connection, from its opening to its end.
    fn carry(&self, key: (Way, u64), near: &TcpStream, target: SocketAddr) {
        let way = key.0;
        drop(self.wait(|state| !state.cuts.contains_key(&way) && !state.cuts.contains_key(&back(way))));
        if let Ok(far) = TcpStream::connect(target) {
            // Nagle's algorithm would add delays that the network does not have.
            let prepared = near.set_nodelay(true).and(far.set_nodelay(true)).and(far.try_clone());
            let cut = {
                let mut state = self.lock();
                state.open.entry(key).or_default().extend(prepared);
                state.ended || matches!(state.cuts.get(&way), Some(Cut::Broken | Cut::Refused))
            };
            if !cut {
                std::thread::scope(|scope| {
                    scope.spawn(|| self.pump(way, near, &far));
                    self.pump(back(way), &far, near);
                });
            }
            end(&far);
        }
        end(near);
        self.lock().open.remove(&key);
    }

    /// Carries the bytes of one direction. An end in good order is passed on alone, a broken connection breaks both directions.
    fn pump(&self, way: Way, mut from: &TcpStream, mut to: &TcpStream) {
        let mut chunk = vec![0; 64 << 10];
        loop {
            let read = from.read(&mut chunk);
            if self.wait(|state| !state.cuts.contains_key(&way)).ended {
                return;
            }
            match read {
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
                Ok(count) if to.write_all(&chunk[..count]).is_ok() => {}
                Ok(_) | Err(_) => {
                    end(from);
                    end(to);
                    return;
                }
            }
        }
    }
}
