//! The input of a running program: written while its output is read, so that neither waits for the other.

use std::future::Future;
use std::io::{self, PipeWriter};
use std::pin::Pin;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;

/// Under way; dropping it ends the input.
pub(super) type Feed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Through the helper's pipe, led by the input's length in eight bytes, or straight into the program.
pub(super) fn feed(owner: Option<PipeWriter>, own: Option<ChildStdin>, input: Vec<u8>) -> io::Result<Option<Feed>> {
    if let Some(owner) = owner {
        let sender = pipe::Sender::from_owned_fd(owner.into())?;
        let mut bytes = (input.len() as u64).to_le_bytes().to_vec();
        bytes.extend(input);
        return Ok(Some(Box::pin(write(sender, bytes))));
    }
    Ok(own.map(|own| -> Feed { Box::pin(write(own, input)) }))
}

/// A program that does not read to the end of its input is its own business.
async fn write(mut to: impl AsyncWrite + Unpin, bytes: Vec<u8>) {
    to.write_all(&bytes).await.ok();
    to.flush().await.ok();
}

/// Waits for the end of the writing.
pub(super) async fn done(feed: &mut Option<Feed>) {
    match feed {
        Some(feed) => feed.await,
        None => std::future::pending().await,
    }
}
