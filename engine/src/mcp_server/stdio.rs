//! The transport on standard streams: one message a line. Every request gets a response, even a request that is too
//! large or is not a valid message.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientRequest, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::fs::FileType;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, mpsc, watch};

use super::MAX_MESSAGE_BYTES;
use super::call_order::CallOrder;
use super::message::{IdFinder, MessageError, check_message};
use super::open_requests::OpenRequests;

/// Maximum number of received messages that wait to be handled.
const MAX_RECEIVED: usize = 64;

type Input = Box<dyn AsyncRead + Send + Unpin>;
type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// A guard that sets standard input and output to blocking mode again when it is dropped, because other programs may
/// share these streams.
pub(super) struct BlockingModeGuard;

impl Drop for BlockingModeGuard {
    fn drop(&mut self) {
        for stream in [io::stdin().as_fd(), io::stdout().as_fd()] {
            // A closed stream has no mode, so a failure is ignored.
            rustix::io::ioctl_fionbio(stream, false).ok();
        }
    }
}

/// Opens the standard streams of this process. Must be called inside a tokio runtime. The runtime polls the streams
/// that are pipes or sockets, because a blocking read on another thread would cost several thread switches for every
/// message.
pub(super) fn open_standard_streams() -> (Input, Output, BlockingModeGuard) {
    let input = polled(&io::stdin(), |fd| Ok(Box::new(pipe::Receiver::from_owned_fd(fd)?) as Input), |s| Box::new(s));
    // If stdout and stderr are the same file, non-blocking mode would apply to both, and writes of diagnostics could
    // fail.
    let is_shared =
        file_identity(io::stdout().as_fd()).is_none_or(|own| file_identity(io::stderr().as_fd()) == Some(own));
    let output = if is_shared {
        None
    } else {
        polled(&io::stdout(), |fd| Ok(Box::new(pipe::Sender::from_owned_fd(fd)?) as Output), |s| Box::new(s))
    };
    let input = input.unwrap_or_else(|| Box::new(tokio::io::stdin()));
    let output = output.unwrap_or_else(|| Box::new(tokio::io::stdout()));
    (input, output, BlockingModeGuard)
}

/// Opens a standard stream for asynchronous reads or writes without a blocking thread. `None` for a stream that is
/// neither a pipe nor a socket, such as a terminal, and if it cannot be opened.
fn polled<S>(
    stream: &impl AsFd,
    open_pipe: impl FnOnce(OwnedFd) -> io::Result<S>,
    open_socket: impl FnOnce(UnixStream) -> S,
) -> Option<S> {
    let stat = rustix::fs::fstat(stream).ok()?;
    let fd = stream.as_fd().try_clone_to_owned().ok()?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo => open_pipe(fd).ok(),
        FileType::Socket => {
            let socket = std::os::unix::net::UnixStream::from(fd);
            socket.set_nonblocking(true).ok()?;
            UnixStream::from_std(socket).ok().map(open_socket)
        }
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => None,
    }
}

fn file_identity(stream: BorrowedFd<'_>) -> Option<(u64, u64)> {
    rustix::fs::fstat(stream).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// A transport that reads messages from one stream and writes messages to another stream. Clones share the streams.
pub(super) struct LineTransport<W> {
    received: Arc<Mutex<mpsc::Receiver<RxJsonRpcMessage<RoleServer>>>>,
    output: Arc<Mutex<W>>,
    requests: OpenRequests,
}

impl<W> Clone for LineTransport<W> {
    fn clone(&self) -> Self {
        Self { received: Arc::clone(&self.received), output: Arc::clone(&self.output), requests: self.requests.clone() }
    }
}

/// The session id for requests on standard streams, which have only one session.
const SESSION: &str = "";

impl<W: AsyncWrite + Send + Unpin + 'static> LineTransport<W> {
    /// Opens the transport. The returned receiver becomes true at the end of the input.
    pub fn open(input: impl AsyncRead + Send + Unpin + 'static, output: W) -> (Self, watch::Receiver<bool>) {
        let (sender, received) = mpsc::channel(MAX_RECEIVED);
        let (ended, is_ended) = watch::channel(false);
        let output = Arc::new(Mutex::new(output));
        let responses = Arc::clone(&output);
        let requests = OpenRequests::default();
        let received_requests = requests.clone();
        // The messages are read by a separate task, because reading a line must not be interrupted.
        tokio::spawn(async move {
            if let Err(error) = receive(BufReader::new(input), &sender, &responses, &received_requests).await {
                tracing::warn!(%error, "the client's messages cannot be read");
            }
            ended.send_replace(true);
        });
        (Self { received: Arc::new(Mutex::new(received)), output, requests }, is_ended)
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Transport<RoleServer> for LineTransport<W> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let output = Arc::clone(&self.output);
        self.requests.close(SESSION, &message);
        async move { write_line(&output, serde_json::to_string(&message)?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.received.lock().await.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.output.lock().await.flush().await
    }
}

async fn write_line<W: AsyncWrite + Unpin>(output: &Mutex<W>, mut line: String) -> io::Result<()> {
    line.push('\n');
    let mut output = output.lock().await;
    output.write_all(line.as_bytes()).await?;
    output.flush().await
}

/// Reads messages until the end of the input, and passes them to `sender`. Answers a message that cannot be handled
/// with an error.
async fn receive<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut input: BufReader<R>,
    sender: &mpsc::Sender<RxJsonRpcMessage<RoleServer>>,
    output: &Mutex<W>,
    requests: &OpenRequests,
) -> io::Result<()> {
    let order = CallOrder::default();
    while let Some(line) = read_line(&mut input).await? {
        let checked = line.and_then(|line| {
            if line.trim_ascii().is_empty() {
                return Ok(None);
            }
            let message = check_message(&line)?;
            let id = message.get("id").cloned().unwrap_or_default();
            match serde_json::from_value(message.clone()) {
                Ok(parsed) => requests.open(SESSION, &message).map(|()| Some(parsed)),
                // A notification gets no response.
                Err(_) if id.is_null() => Ok(None),
                Err(_) => Err(MessageError::unreadable(id).with_id_of(&line)),
            }
        });
        match checked {
            Ok(Some(mut message)) => {
                if let JsonRpcMessage::Request(request) = &mut message
                    && let ClientRequest::CallToolRequest(call) = &mut request.request
                {
                    call.extensions.insert(order.ticket());
                }
                if sender.send(message).await.is_err() {
                    return Ok(());
                }
            }
            Ok(None) => {}
            Err(error) => write_line(output, error.response()).await?,
        }
    }
    Ok(())
}

/// Reads a line and returns it without its line break. `None` at the end of the input. The last line needs no line
/// break. The inner error is the response to a line that is too large.
async fn read_line<R: AsyncRead + Unpin>(
    input: &mut BufReader<R>,
) -> io::Result<Option<Result<Vec<u8>, MessageError>>> {
    let mut line = Vec::new();
    let mut oversized: Option<IdFinder> = None;
    loop {
        let available = input.fill_buf().await?;
        if available.is_empty() {
            return Ok(match oversized {
                Some(finder) => Some(Err(MessageError::oversized(finder.id()))),
                None if line.is_empty() => None,
                None => Some(Ok(line)),
            });
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
        match &mut oversized {
            Some(finder) => finder.push(part),
            None => line.extend_from_slice(part),
        }
        if line.len() > MAX_MESSAGE_BYTES {
            let finder = oversized.insert(IdFinder::default());
            finder.push(&line);
            line = Vec::new();
        }
        let used = part.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(Some(match oversized {
                Some(finder) => Err(MessageError::oversized(finder.id())),
                None => Ok(line),
            }));
        }
    }
}
