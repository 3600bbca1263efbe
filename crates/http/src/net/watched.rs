//! A connection whose reads and writes are noted in the table of connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::table::Entry;

/// A client that takes less than this between two looks has taken nothing.
const TAKES_BYTES: usize = 64 << 10;

pub(crate) struct Watched<S> {
    stream: S,
    entry: Arc<Entry>,
    /// Bytes taken since the client last stood still.
    taken: usize,
}

impl<S> Watched<S> {
    pub(crate) fn new(stream: S, entry: Arc<Entry>) -> Watched<S> {
        Watched { stream, entry, taken: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.entry.received();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Ok(count)) => {
                self.taken += count;
                if self.taken >= TAKES_BYTES {
                    self.taken = 0;
                    self.entry.takes();
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.entry.stalls();
                Poll::Pending
            }
        }
    }

    /// Ends once everything that was written has been taken.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(context) else {
            self.entry.stalls();
            return Poll::Pending;
        };
        self.taken = 0;
        self.entry.takes();
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
