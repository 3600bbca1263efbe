//! A connection between two nodes after they have introduced themselves, on threads that block: with TLS or, without a secret, plain.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use highwater_wire::NodeId;
use rustls::{ClientConnection, ServerConnection};

use super::introduce::{Introduction, PeerRefused, Proven};
use super::prove::Handshake;
use super::tls::{LINK_PROTOCOL, NodeTls, exported};

/// How long either end may take to introduce itself, TLS included.
pub(crate) const HELLO_WAIT: Duration = Duration::from_secs(5);
const DIAL_WAIT: Duration = Duration::from_secs(1);
/// How long the other end may take to take what a connection still holds that is replaced.
const FINISH_WAIT: Duration = Duration::from_millis(500);
/// Bytes read at once from a plain connection.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes given to TLS at once; it makes records of at most 16 KiB.
const SEALED_BYTES: usize = 64 << 10;

/// The dialled end of a link, which only sends.
pub(crate) struct Dialled {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

/// Dials a node at its address, and introduces both.
pub(crate) fn dial(
    address: &str,
    wanted: NodeId,
    introduction: &Introduction,
    tls: &NodeTls,
) -> Result<(Dialled, Proven), PeerRefused> {
    let mut last = io::Error::new(ErrorKind::NotFound, format!("{address} has no address"));
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, DIAL_WAIT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let (socket, tls, proven) = introduce(stream, wanted, introduction, tls)?;
                if proven.node() != wanted {
                    return Err(PeerRefused::OtherNode { wanted, found: proven.node() });
                }
                socket.set_read_timeout(None)?;
                // Who takes nothing for so long is given up.
                socket.set_write_timeout(Some(HELLO_WAIT))?;
                return Ok((Dialled { stream: socket, tls }, proven));
            }
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

type Introduced = (TcpStream, Option<Box<ClientConnection>>, Proven);

fn introduce(
    socket: TcpStream,
    wanted: NodeId,
    introduction: &Introduction,
    tls: &NodeTls,
) -> Result<Introduced, PeerRefused> {
    let mut stream = Deadlined { socket, until: Instant::now() + HELLO_WAIT };
    let mut received = BytesMut::new();
    if introduction.secrets().is_none() {
        stream.write_all(&introduction.plain_hello())?;
        loop {
            if let Some(proven) = introduction.plain_received(&mut received)? {
                return Ok((stream.socket, None, proven));
            }
            read_some(&mut stream, &mut received)?;
        }
    }
    let mut connection = ClientConnection::new(tls.dials(LINK_PROTOCOL), NodeTls::name()).map_err(PeerRefused::Tls)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(tls_or_io)?;
    }
    let exported = exported(&connection, LINK_PROTOCOL)?;
    let (mut handshake, first) = Handshake::dialling(introduction, exported, wanted);
    let mut both = rustls::Stream::new(&mut connection, &mut stream);
    both.write_all(&first)?;
    let proven = loop {
        read_some(&mut both, &mut received)?;
        let mut out = Vec::new();
        let outcome = handshake.received(&mut received, &mut out);
        both.write_all(&out)?;
        if let Some(proven) = outcome? {
            break proven;
        }
    };
    Ok((stream.socket, Some(Box::new(connection)), proven))
}

fn read_some(from: &mut impl Read, into: &mut BytesMut) -> Result<(), PeerRefused> {
    let mut chunk = [0; 2048];
    match from.read(&mut chunk) {
        Ok(0) => Err(PeerRefused::Unanswered),
        Ok(count) => {
            into.extend_from_slice(&chunk[..count]);
            Ok(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
            Err(PeerRefused::Unanswered)
        }
        Err(error) => Err(tls_or_io(error)),
    }
}

/// rustls puts its own errors into those of input and output.
pub(crate) fn tls_or_io(error: io::Error) -> PeerRefused {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(inner) => PeerRefused::Tls(inner.clone()),
        None if error.kind() == ErrorKind::UnexpectedEof => PeerRefused::Unanswered,
        None => error.into(),
    }
}

impl Dialled {
    /// Sends all of it.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.write_all(bytes);
        };
        for piece in bytes.chunks(SEALED_BYTES) {
            let mut rest = piece;
            while !rest.is_empty() {
                let taken = tls.writer().write(rest)?;
                rest = &rest[taken..];
                while tls.wants_write() {
                    tls.write_tls(&mut self.stream)?;
                }
            }
        }
        Ok(())
    }

    /// The socket, for whoever waits for its end. Nothing is ever received on it but what TLS says to itself.
    pub(crate) fn socket(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Sends nothing more, and waits until the other end has taken everything and ended it, a bounded time.
    pub(crate) fn finish(mut self) {
        let until = Instant::now() + FINISH_WAIT;
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut chunk = [0; 64];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                break;
            }
            match self.stream.read(&mut chunk) {
                Ok(count) if count > 0 => {}
                _ => break,
            }
        }
        self.end();
    }

    /// Ends it; that the other end may have done so before is no matter.
    pub(crate) fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// The accepted end of a link, which only receives.
pub(crate) struct Accepted {
    stream: TcpStream,
    tls: Option<Box<ServerConnection>>,
    chunk: Vec<u8>,
}

impl Accepted {
    /// A blocking socket whose node has introduced itself, with what TLS knows of it.
    pub(crate) fn new(stream: TcpStream, tls: Option<Box<ServerConnection>>) -> Accepted {
        let bytes = if tls.is_some() { 32 << 10 } else { CHUNK_BYTES };
        Accepted { stream, tls, chunk: vec![0; bytes] }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Waits for more bytes, no longer than the socket's time; 0 at the end. The error of an end without TLS's own word for it is `UnexpectedEof`.
    pub(crate) fn read(&mut self, into: &mut BytesMut) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let count = self.stream.read(&mut self.chunk)?;
            into.extend_from_slice(&self.chunk[..count]);
            return Ok(count);
        };
        loop {
            let mut taken = 0;
            loop {
                match tls.reader().read(&mut self.chunk) {
                    Ok(0) if taken == 0 => return Ok(0),
                    Ok(0) => return Ok(taken),
                    Ok(count) => {
                        into.extend_from_slice(&self.chunk[..count]);
                        taken += count;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) if taken > 0 => return Ok(taken),
                    Err(error) => return Err(error),
                }
            }
            if taken > 0 {
                return Ok(taken);
            }
            tls.read_tls(&mut self.stream)?;
            tls.process_new_packets().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        }
    }
}

/// A socket that is given up at one moment, however slowly the other end goes on until then.
struct Deadlined {
    socket: TcpStream,
    until: Instant,
}

impl Deadlined {
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Read for Deadlined {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(buffer)
    }
}

impl Write for Deadlined {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
