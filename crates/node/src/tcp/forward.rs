//! Connections on which this node forwards clients' requests to another one: HTTP/1.1 behind the same proof as between nodes, or plain where no secret is configured.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use highwater_wire::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::channel::{HELLO_WAIT, tls_or_io};
use super::introduce::{Introduction, PeerRefused};
use super::prove::Handshake;
use super::tls::{FORWARD_PROTOCOL, NodeTls, exported};

const CONNECT_WAIT: Duration = Duration::from_millis(500);

/// A connection to a node that has proven who it is.
#[derive(Debug)]
pub enum ForwardStream {
    /// Without a secret, on loopback.
    Plain(TcpStream),
    /// With one.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Dials a node to forward requests to it.
pub(crate) async fn dial(
    address: &str,
    wanted: NodeId,
    introduction: &Introduction,
    tls: &NodeTls,
) -> Result<ForwardStream, PeerRefused> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let stream = tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(address)).await.map_err(late)??;
    stream.set_nodelay(true)?;
    if introduction.secrets().is_none() {
        return Ok(ForwardStream::Plain(stream));
    }
    let proving = prove(stream, wanted, introduction, tls);
    let stream = tokio::time::timeout(HELLO_WAIT, proving).await.map_err(late)??;
    Ok(ForwardStream::Tls(Box::new(stream)))
}

async fn prove(
    stream: TcpStream,
    wanted: NodeId,
    introduction: &Introduction,
    tls: &NodeTls,
) -> Result<TlsStream<TcpStream>, PeerRefused> {
    let connector = TlsConnector::from(tls.dials(FORWARD_PROTOCOL));
    let mut stream = connector.connect(NodeTls::name(), stream).await.map_err(tls_or_io)?;
    let exported = exported(stream.get_ref().1, FORWARD_PROTOCOL)?;
    let (mut handshake, mut out) = Handshake::dialling(introduction, exported, wanted);
    let mut received = BytesMut::new();
    loop {
        stream.write_all(&out).await?;
        stream.flush().await?;
        let mut chunk = [0; 1024];
        match stream.read(&mut chunk).await.map_err(tls_or_io)? {
            0 => return Err(PeerRefused::Unanswered),
            count => received.extend_from_slice(&chunk[..count]),
        }
        out = Vec::new();
        if handshake.received(&mut received, &mut out)?.is_some() {
            return Ok(stream);
        }
    }
}

macro_rules! either {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            ForwardStream::Plain($stream) => $call,
            ForwardStream::Tls($stream) => $call,
        }
    };
}

impl AsyncRead for ForwardStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for ForwardStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => Pin::new(stream).poll_shutdown(context))
    }
}
