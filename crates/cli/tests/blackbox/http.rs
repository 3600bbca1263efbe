//! A small HTTP/1.1 client over a plain socket, so that tests decide about every byte that leaves, half a request included.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

/// No answer may take longer. A test that meets this limit has found a node that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a connection's bytes go over: a socket, or TLS over one.
pub(crate) trait Wire: Read + Write + Send {}

impl<T: Read + Write + Send> Wire for T {}

/// A connection that is kept open between requests.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Wire>>,
    host: SocketAddr,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Response {
    /// The status code.
    pub(crate) status: u16,
    /// Header names in lower case, with their values.
    pub(crate) headers: Vec<(String, String)>,
    /// The body.
    pub(crate) body: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub(crate) fn open(host: SocketAddr) -> Connection {
        Connection::try_open(host).expect("the node accepts a connection")
    }

    /// Connects, if the node listens.
    pub(crate) fn try_open(host: SocketAddr) -> std::io::Result<Connection> {
        Ok(Connection { stream: BufReader::new(Box::new(connect(host)?)), host })
    }

    /// The same under TLS.
    pub(crate) fn try_open_tls(host: SocketAddr, config: Arc<ClientConfig>) -> std::io::Result<Connection> {
        let tls = ClientConnection::new(config, ServerName::from(host.ip())).map_err(std::io::Error::other)?;
        let stream = StreamOwned::new(tls, connect(host)?);
        Ok(Connection { stream: BufReader::new(Box::new(stream)), host })
    }

    /// Sends a request and reads its answer.
    pub(crate) fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        self.try_request(method, path, headers, body).expect("the node answers")
    }

    /// Sends a request and reads its answer, or says how the connection broke.
    pub(crate) fn try_request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n", self.host, body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send(head.as_bytes())?;
        // A node may refuse a body it will not read and answer before all of it was sent; the answer counts, not the broken pipe.
        let sent = self.send(body);
        match self.receive() {
            Ok(response) => Ok(response),
            Err(error) => sent.and(Err(error)),
        }
    }

    /// Posts JSON and reads JSON.
    pub(crate) fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        let response = self.request("POST", path, &JSON, body.to_string().as_bytes());
        (response.status, response.json())
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)?;
        self.stream.get_mut().flush()
    }

    /// Reads one answer.
    pub(crate) fn receive(&mut self) -> std::io::Result<Response> {
        let status_line = self.line()?;
        let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| malformed(format!("status line {status_line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| malformed(format!("header {line:?}")))?;
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response { status, headers, body: Vec::new() };
        if status == 100 {
            return self.receive();
        }
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = self.chunks()?;
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().map_err(|_| malformed(format!("length {length:?}")))?;
            response.body.resize(length, 0);
            self.stream.read_exact(&mut response.body)?;
        }
        Ok(response)
    }

    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let size = self.line()?;
            let size = usize::from_str_radix(&size, 16).map_err(|_| malformed(format!("chunk size {size:?}")))?;
            let begin = body.len();
            body.resize(begin + size, 0);
            self.stream.read_exact(&mut body[begin..])?;
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }
}

fn connect(host: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&host, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The header that says a body is JSON.
pub(crate) const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

impl Response {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("JSON was expected ({error}): {}", String::from_utf8_lossy(&self.body)))
    }
}

fn malformed(what: String) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}
