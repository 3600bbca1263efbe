//! As much of HTTP/1.1 as is needed to send a request and read its answer over one connection that is kept.
//!
//! What matters to the caller of a request that must not be done twice is whether it can have arrived: [`Broken::sent`] is false only if not a byte of it left.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use crate::stream::Stream;
use crate::tls;

/// The longest head of an answer, in bytes.
const HEAD_MAX_BYTES: usize = 64 << 10;

/// The longest body of an answer, in bytes: a server's answers are shorter.
const BODY_MAX_BYTES: usize = 512 << 20;

/// A connection that has been idle for this long is looked at before it is used: its server may have closed it.
const IDLE_UNQUESTIONED: Duration = Duration::from_millis(500);

/// An exchange without an answer.
#[derive(Debug)]
pub(crate) struct Broken {
    /// Whether the request may have arrived.
    pub(crate) sent: bool,
    /// Whether it was the time that ran out.
    pub(crate) timed_out: bool,
    /// Whether the two ends do not agree about TLS: trying again will not help.
    pub(crate) tls: bool,
    /// What happened.
    pub(crate) reason: String,
    /// Which node to ask instead, if one is known.
    pub(crate) instead: Option<usize>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// A connection between two requests.
pub(crate) struct Connection {
    stream: Stream,
    /// Bytes read and not used yet.
    buffer: Vec<u8>,
    used: Instant,
}

/// What the head of an answer says about its body.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: Length,
    close: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunked,
    UntilClosed,
}

impl Connection {
    /// Connects to `HOST:PORT`, under TLS if that is configured; `timeout` is for all of it. The error says that nothing was sent.
    pub(crate) fn open(
        authority: &str,
        tls: Option<&Arc<ClientConfig>>,
        timeout: Duration,
    ) -> Result<Connection, Broken> {
        let until = Instant::now() + timeout;
        let unsent = |error: std::io::Error| Broken {
            sent: false,
            timed_out: timed_out(&error),
            tls: tls::explain(authority, &error).is_some(),
            reason: tls::explain(authority, &error)
                .unwrap_or_else(|| format!("{authority} cannot be connected to: {error}")),
            instead: None,
        };
        let addresses: Vec<SocketAddr> = authority.to_socket_addrs().map_err(unsent)?.collect();
        let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(socket) => {
                    socket.set_nodelay(true).map_err(unsent)?;
                    let stream = match tls {
                        Some(config) => Stream::secure(socket, config, authority, until).map_err(unsent)?,
                        None => Stream::plain(socket),
                    };
                    return Ok(Connection { stream, buffer: Vec::new(), used: Instant::now() });
                }
                Err(error) => last = error,
            }
        }
        Err(unsent(last))
    }

    /// Whether it still seems good for another request.
    pub(crate) fn is_usable(&mut self) -> bool {
        self.used.elapsed() < IDLE_UNQUESTIONED || self.stream.is_quiet()
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &[u8], deadline: Instant) -> Result<(), Broken> {
        assert!(self.buffer.is_empty(), "a connection is used again only after a whole answer");
        let mut rest = request;
        let before = self.stream.written();
        while !rest.is_empty() {
            match self.stream.write(rest, deadline) {
                Ok(0) => {
                    return Err(broken(self.stream.written() > before, "the connection takes no more bytes".into()));
                }
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(at(self.stream.written() > before, &error)),
            }
        }
        Ok(())
    }

    /// Waits until the answer to what was sent begins; false if it has not by then.
    pub(crate) fn begins(&mut self, until: Instant) -> Result<bool, Broken> {
        if !self.buffer.is_empty() {
            return Ok(true);
        }
        match self.more(until) {
            Ok(()) => Ok(true),
            Err(error) if timed_out(&error) => Ok(false),
            Err(error) => Err(at(true, &error)),
        }
    }

    /// Reads the answer to what was sent. The flag says whether the connection may be used again.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<(Response, bool), Broken> {
        let answer = self.answer(deadline).map_err(|error| at(true, &error))?;
        self.used = Instant::now();
        Ok(answer)
    }

    fn answer(&mut self, deadline: Instant) -> std::io::Result<(Response, bool)> {
        let head = loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = read_head(&self.buffer[..end])?;
                self.buffer.drain(..end + 4);
                // 1xx only announces the answer.
                if head.status >= 200 {
                    break head;
                }
                continue;
            }
            if self.buffer.len() > HEAD_MAX_BYTES {
                return Err(malformed("the head of the answer is too long"));
            }
            self.more(deadline)?;
        };
        let body = match head.length {
            Length::Bytes(length) => self.take(length, deadline)?,
            Length::Chunked => self.chunks(deadline)?,
            Length::UntilClosed => loop {
                match self.more(deadline) {
                    Ok(()) if self.buffer.len() > BODY_MAX_BYTES => return Err(malformed("the answer is too long")),
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => break std::mem::take(&mut self.buffer),
                    Err(error) => return Err(error),
                }
            },
        };
        let whole = self.buffer.is_empty() && !self.stream.holds_bytes();
        let reusable = !head.close && head.length != Length::UntilClosed && whole;
        Ok((Response { status: head.status, body }, reusable))
    }

    fn take(&mut self, length: usize, deadline: Instant) -> std::io::Result<Vec<u8>> {
        if length > BODY_MAX_BYTES {
            return Err(malformed("the answer is too long"));
        }
        while self.buffer.len() < length {
            self.more(deadline)?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn line(&mut self, deadline: Instant) -> std::io::Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                return Ok(line);
            }
            if self.buffer.len() > HEAD_MAX_BYTES {
                return Err(malformed("a line of the answer is too long"));
            }
            self.more(deadline)?;
        }
    }

    fn chunks(&mut self, deadline: Instant) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line(deadline)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| malformed("a chunk without a size"))?;
            if size == 0 {
                while !self.line(deadline)?.is_empty() {}
                return Ok(body);
            }
            if size > BODY_MAX_BYTES - body.len() {
                return Err(malformed("the answer is too long"));
            }
            body.extend(self.take(size, deadline)?);
            if !self.line(deadline)?.is_empty() {
                return Err(malformed("a chunk longer than it says"));
            }
        }
    }

    fn more(&mut self, deadline: Instant) -> std::io::Result<()> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes, deadline)? {
            0 => Err(std::io::Error::new(
                ErrorKind::UnexpectedEof,
                "the connection was closed before the answer was whole",
            )),
            count => {
                self.buffer.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

fn broken(sent: bool, reason: String) -> Broken {
    Broken { sent, timed_out: false, tls: false, reason, instead: None }
}

fn at(sent: bool, error: &std::io::Error) -> Broken {
    let timed_out = timed_out(error);
    let reason = if timed_out { "no answer in time".into() } else { error.to_string() };
    Broken { sent, timed_out, tls: false, reason, instead: None }
}

fn timed_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

fn malformed(reason: &str) -> std::io::Error {
    std::io::Error::new(ErrorKind::InvalidData, reason.to_string())
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn read_head(bytes: &[u8]) -> std::io::Result<Head> {
    let text = std::str::from_utf8(bytes).map_err(|_| malformed("the head of the answer is not text"))?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| malformed("the answer is not HTTP/1.1"))?;
    let mut head = Head { status, length: Length::UntilClosed, close: first.starts_with("HTTP/1.0") };
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header without a colon"))?;
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                let length = value.parse().map_err(|_| malformed("a content-length that is no number"))?;
                head.length = Length::Bytes(length);
            }
            "transfer-encoding" if value.eq_ignore_ascii_case("chunked") => head.length = Length::Chunked,
            "transfer-encoding" => return Err(malformed("a transfer-encoding other than chunked")),
            "connection" => head.close |= value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if status == 204 || status == 304 {
        head.length = Length::Bytes(0);
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn answered(bytes: &'static [u8]) -> Result<(Response, bool), Broken> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let authority = listener.local_addr().expect("an address").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 4];
            stream.read_exact(&mut request).expect("the request");
            stream.write_all(bytes).expect("an answer");
        });
        let mut connection = Connection::open(&authority, None, Duration::from_secs(5)).expect("a connection");
        let deadline = Instant::now() + Duration::from_secs(30);
        let answer = connection.send(b"ping", deadline).and_then(|()| connection.receive(deadline));
        server.join().expect("the server ends");
        answer
    }

    #[test]
    fn bodies_of_every_kind_are_read() {
        for (bytes, status, body, again) in [
            (&b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"[..], 200, &b"ab"[..], true),
            (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", 503, b"", false),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
                200,
                b"abc",
                true,
            ),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end", false),
        ] {
            let (response, reusable) = answered(bytes).expect("an answer");
            assert_eq!((response.status, &response.body[..], reusable), (status, body, again));
        }
    }

    #[test]
    fn an_answer_cut_short_or_malformed_is_none_and_may_have_arrived() {
        for bytes in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
        ] {
            let broken = answered(bytes).expect_err("no answer");
            assert!(broken.sent && !broken.timed_out, "{broken:?}");
        }
    }

    #[test]
    fn a_refused_connection_sent_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let authority = listener.local_addr().expect("an address").to_string();
        drop(listener);
        let broken = Connection::open(&authority, None, Duration::from_secs(5)).err().expect("nobody listens");
        assert!(!broken.sent, "{broken:?}");
    }
}
