//! The input of a running program, written while the output is read, so that neither side blocks the other.

use std::future::Future;
use std::io::{self, PipeWriter};
use std::pin::Pin;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStdin;

/// A write in progress; dropping it closes the input.
pub(super) type InputWrite = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts writing the input of a program. If a helper runs the program, `owner` is the pipe to the helper, and the
/// length of the input is written first, in eight bytes. Otherwise the input is written to `own`, the standard input of
/// the program. `None` if both are `None`.
pub(super) fn write_input(
    owner: Option<PipeWriter>,
    own: Option<ChildStdin>,
    input: Vec<u8>,
) -> io::Result<Option<InputWrite>> {
    if let Some(owner) = owner {
        let sender = pipe::Sender::from_owned_fd(owner.into())?;
        let mut bytes = (input.len() as u64).to_le_bytes().to_vec();
        bytes.extend(input);
        return Ok(Some(Box::pin(write(sender, bytes))));
    }
    Ok(own.map(|own| -> InputWrite { Box::pin(write(own, input)) }))
}

/// Writes the input. Errors are ignored: a program need not read all of its input.
async fn write(mut to: impl AsyncWrite + Unpin, bytes: Vec<u8>) {
    to.write_all(&bytes).await.ok();
    to.flush().await.ok();
}

/// Waits until the input is written. Never completes if there is no input.
pub(super) async fn wait_written(feed: &mut Option<InputWrite>) {
    match feed {
        Some(feed) => feed.await,
        None => std::future::pending().await,
    }
}
