//! A blocking connection to a node, plain or under TLS, whose reads and writes end at a deadline.
//!
//! Under TLS bytes of the connection's own may come at any time: session tickets after the handshake, requests for new keys. They are taken in wherever bytes
//! are read, and mean nothing to the caller. A node that ends the connection says so inside TLS; an end without that may be anybody's, and is an error.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection};

use crate::tls;

/// A connected stream.
pub(crate) struct Stream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// How many bytes have left, those of TLS itself included.
    written: u64,
    read_timeout: Option<Duration>,
}

impl Stream {
    /// A stream without TLS.
    pub(crate) fn plain(socket: TcpStream) -> Stream {
        Stream { socket, tls: None, written: 0, read_timeout: None }
    }

    /// A stream under TLS with the node at `HOST:PORT`, whose handshake is done. Nothing of a request has left if it fails.
    pub(crate) fn secure(
        socket: TcpStream,
        config: &Arc<ClientConfig>,
        authority: &str,
        until: Instant,
    ) -> Result<Stream> {
        let invalid = |error| Error::new(ErrorKind::InvalidInput, error);
        let tls = ClientConnection::new(config.clone(), tls::name(authority)?).map_err(invalid)?;
        let mut stream = Stream { socket, tls: Some(Box::new(tls)), written: 0, read_timeout: None };
        loop {
            stream.flush(until)?;
            if !stream.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
                return Ok(stream);
            }
            if stream.take_in(until)? == 0 {
                let reason = format!(
                    "the connection was closed during the TLS handshake; if the node does not speak TLS, use http://{authority}"
                );
                return Err(Error::new(ErrorKind::UnexpectedEof, reason));
            }
        }
    }

    /// Writes as much as there is room for. Returns how many bytes were taken.
    pub(crate) fn write(&mut self, bytes: &[u8], deadline: Instant) -> Result<usize> {
        let Some(tls) = &mut self.tls else {
            self.socket.set_write_timeout(Some(left(deadline)?))?;
            let taken = self.socket.write(bytes)?;
            self.written += taken as u64;
            return Ok(taken);
        };
        let taken = tls.writer().write(bytes)?;
        self.flush(deadline)?;
        Ok(taken)
    }

    /// Sends what TLS holds back.
    fn flush(&mut self, deadline: Instant) -> Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            self.socket.set_write_timeout(Some(left(deadline)?))?;
            match tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(Error::new(ErrorKind::WriteZero, "the connection takes no more bytes")),
                Ok(count) => self.written += count as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for bytes and reads them; 0 at the end of the connection, if its node said that it ends.
    pub(crate) fn read(&mut self, bytes: &mut [u8], deadline: Instant) -> Result<usize> {
        if self.tls.is_none() {
            self.limit_reads(deadline)?;
            return uninterrupted(|| self.socket.read(bytes));
        }
        loop {
            let tls = self.tls.as_mut().expect("looked at above");
            match tls.reader().read(bytes) {
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Not `UnexpectedEof`, which would end a body without a length as if it were whole.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(Error::new(
                        ErrorKind::ConnectionAborted,
                        "the connection ended without the end of TLS",
                    ));
                }
                Err(error) => return Err(error),
            }
            self.take_in(deadline)?;
            self.flush(deadline)?;
        }
    }

    /// How many bytes have left. If a write fails and the number stands where it stood before, nothing of it has.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether nothing was said since the last answer, as it must be between two requests: anything that a node could say there is the end.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if self.socket.set_nonblocking(true).is_err() {
            return false;
        }
        let quiet = match &mut self.tls {
            None => would_block(&self.socket.peek(&mut [0; 1])),
            Some(tls) => loop {
                match tls.read_tls(&mut self.socket) {
                    Ok(0) => break false,
                    Ok(_) => match tls.process_new_packets() {
                        Ok(state) if state.plaintext_bytes_to_read() == 0 && !state.peer_has_closed() => {}
                        _ => break false,
                    },
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => break would_block(&read),
                }
            },
        };
        quiet && self.socket.set_nonblocking(false).is_ok()
    }

    /// Whether bytes were received that nobody has read.
    pub(crate) fn holds_bytes(&mut self) -> bool {
        let state = self.tls.as_mut().map(|tls| tls.process_new_packets());
        state.is_some_and(|state| state.map_or(true, |state| state.plaintext_bytes_to_read() > 0))
    }

    /// Receives once under TLS. Returns how many bytes came.
    fn take_in(&mut self, deadline: Instant) -> Result<usize> {
        self.limit_reads(deadline)?;
        let tls = self.tls.as_mut().expect("only called under TLS");
        let count = uninterrupted(|| tls.read_tls(&mut self.socket))?;
        if let Err(error) = tls.process_new_packets() {
            // The node is told why, if it can be; what counts is the error here.
            let _ = self.flush(deadline);
            return Err(Error::new(ErrorKind::InvalidData, error));
        }
        Ok(count)
    }

    fn limit_reads(&mut self, deadline: Instant) -> Result<()> {
        let left = left(deadline)?;
        // Setting it costs a system call, and a little later does no harm.
        if self.read_timeout.is_none_or(|set| set > left || set + Duration::from_millis(50) < left) {
            self.socket.set_read_timeout(Some(left))?;
            self.read_timeout = Some(left);
        }
        Ok(())
    }
}

fn left(deadline: Instant) -> Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn would_block(read: &Result<usize>) -> bool {
    matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

fn uninterrupted(mut read: impl FnMut() -> Result<usize>) -> Result<usize> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
