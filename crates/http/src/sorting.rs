//! One port for clients and for other nodes: each accepted connection is looked at, and goes to the node's door if it begins like a node's, or else to HTTP.
//!
//! HTTP is served only once the node runs, while its door is open from the beginning; until then clients' connections wait here, a bounded number of them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use highwater_node::tcp::Door;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Clients' connections that may wait to be served.
const WAITING_MAX: usize = 1024;
/// Who has sent nothing for so long is a client that keeps a connection ready: nodes speak first.
const SILENCE: Duration = Duration::from_secs(2);
/// Between two looks at a connection that has sent too little to tell.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// After accepting failed, which happens when there are too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The clients' connections of a port, as axum takes them.
pub(crate) struct Clients {
    address: SocketAddr,
    waiting: mpsc::Receiver<(TcpStream, SocketAddr)>,
    accepting: JoinHandle<()>,
}

impl Clients {
    /// Begins to accept.
    pub(crate) fn sort(listener: TcpListener, door: Door) -> io::Result<Clients> {
        let address = listener.local_addr()?;
        let (found, waiting) = mpsc::channel(WAITING_MAX);
        let accepting = tokio::spawn(accept(listener, door, found));
        Ok(Clients { address, waiting, accepting })
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl axum::serve::Listener for Clients {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        match self.waiting.recv().await {
            Some(client) => client,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

async fn accept(listener: TcpListener, door: Door, found: mpsc::Sender<(TcpStream, SocketAddr)>) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let (door, found) = (door.clone(), found.clone());
                tokio::spawn(async move {
                    if let Err(error) = sort_one(stream, from, &door, &found).await {
                        tracing::debug!(%from, %error, "a connection ended before it said anything");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // sleep: most likely no file descriptor is left, and only time brings one back.
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn sort_one(
    stream: TcpStream,
    from: SocketAddr,
    door: &Door,
    found: &mpsc::Sender<(TcpStream, SocketAddr)>,
) -> io::Result<()> {
    let is_node = tokio::time::timeout(SILENCE, begins_like_a_node(&stream)).await.unwrap_or(Ok(false))?;
    if is_node {
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        door.enter(stream);
    } else {
        // An error means that the server has ended, and with it this connection.
        let _ = found.send((stream, from)).await;
    }
    Ok(())
}

async fn begins_like_a_node(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; Door::PEEK_BYTES];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 {
            return Ok(false);
        }
        if let Some(is_node) = Door::is_node(&first[..seen]) {
            return Ok(is_node);
        }
        // sleep: peeking answers at once as long as there is anything, so there is no waiting for more.
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
