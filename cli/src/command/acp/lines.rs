//! The lines of an ACP connection over stdin and stdout. A line that is too long causes a parse error. Invalid UTF-8
//! and control characters in a line are replaced.

use std::io::{self, Write};
use std::task::Poll;

use agent_client_protocol::Lines;
use futures::{Sink, Stream, StreamExt, sink, stream};
use tokio::sync::{mpsc, oneshot};

use super::disconnection::Disconnection;
use crate::command::chat::lines::{Line, LineFault, MAX_LINE_BYTES, read_line};

/// Number of lines that are read ahead.
const READ_AHEAD: usize = 16;

/// A line to write to stdout, with the channel that receives the result of the write.
type Written = (String, oneshot::Sender<io::Result<()>>);

/// Returns a transport over stdin and stdout. One OS thread reads the lines, and another OS thread writes them. Both
/// live until the process ends, because a blocking read or write cannot be cancelled. After the last line of the input,
/// the transport sets `disconnection`. If `disconnection` is set earlier, the transport returns no more lines.
pub fn standard_streams(
    disconnection: Disconnection,
) -> Lines<impl Sink<String, Error = io::Error> + Send, impl Stream<Item = io::Result<String>> + Send> {
    let (sender, mut receiver) = mpsc::channel(READ_AHEAD);
    std::thread::spawn(move || read_input(&sender));
    let stopped = disconnection.wait();
    let incoming = stream::poll_fn(move |cx| {
        let line = receiver.poll_recv(cx);
        if let Poll::Ready(None) = line {
            disconnection.set();
        }
        line
    });
    let incoming = incoming.take_until(stopped);
    let (writer, lines) = mpsc::channel(1);
    std::thread::spawn(move || write_output(lines));
    let outgoing = sink::unfold(writer, async |writer: mpsc::Sender<Written>, line: String| {
        let (done, written) = oneshot::channel();
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        writer.send((line, done)).await.map_err(|_| closed())?;
        written.await.map_err(|_| closed())??;
        Ok(writer)
    });
    Lines::new(outgoing, incoming)
}

fn read_input(lines: &mpsc::Sender<io::Result<String>>) {
    let mut input = io::stdin().lock();
    loop {
        let line = match read_line(&mut input) {
            Ok(Some(line)) => Ok(message_text(line)),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let is_last = line.is_err();
        if lines.blocking_send(line).is_err() || is_last {
            return;
        }
    }
}

/// Returns the text of a line. For a line that is too long, returns a text that is not JSON, so that the client
/// receives a parse error.
fn message_text(line: Line) -> String {
    match line.fault {
        Some(LineFault::TooLong) => format!("a line of more than {} MiB", MAX_LINE_BYTES >> 20),
        Some(LineFault::Repaired) | None => line.text,
    }
}

fn write_output(mut lines: mpsc::Receiver<Written>) {
    let mut output = io::stdout().lock();
    while let Some((mut line, done)) = lines.blocking_recv() {
        line.push('\n');
        let written = output.write_all(line.as_bytes()).and_then(|()| output.flush());
        // If the connection has ended, the receiver of the result is dropped.
        done.send(written).ok();
    }
}
