//! A loopback server that performs a test's moves, down to single bytes and pauses.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// An action of the server, performed after it has read a request.
#[derive(Debug, Clone)]
pub enum ServerMove {
    Send(Vec<u8>),
    Pause(u64),
    /// Sends nothing more until the client closes the connection.
    Stay,
    /// Waits for the next request on the same connection.
    Next,
    /// Closes the connection without reading the request, which resets the connection. Valid only as the first move.
    Reset,
}

/// A raw request, and the connection on which it arrived.
#[derive(Debug)]
pub struct SeenRequest {
    pub connection: usize,
    pub head: String,
    pub body: String,
}

pub struct ScriptedServer {
    pub url: String,
    seen: Receiver<SeenRequest>,
}

impl ScriptedServer {
    /// Plays `moves` on every connection, then closes it.
    pub fn start(moves: Vec<ServerMove>) -> Self {
        Self::start_each(vec![moves])
    }

    /// Plays a list of moves for each connection; the last list repeats for all later connections.
    pub fn start_each(scripts: Vec<Vec<ServerMove>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, seen) = channel();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let moves = scripts.get(connection).or(scripts.last()).cloned().unwrap_or_default();
                let sender = sender.clone();
                thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    if let Some(ServerMove::Reset) = moves.first() {
                        // Closing a connection resets it only if data is unread, so the server waits for data first.
                        let _ = stream.peek(&mut [0]);
                        return;
                    }
                    let Some((head, body)) = read_request(&mut stream) else { return };
                    // The test may have dropped the receiver.
                    let _ = sender.send(SeenRequest { connection, head, body });
                    for step in moves {
                        match step {
                            ServerMove::Send(bytes) => {
                                if stream.write_all(&bytes).is_err() {
                                    return;
                                }
                            }
                            ServerMove::Reset => return,
                            ServerMove::Stay => while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {},
                            ServerMove::Pause(ms) => thread::sleep(Duration::from_millis(ms)),
                            ServerMove::Next => {
                                let Some((head, body)) = read_request(&mut stream) else { return };
                                // The test may have dropped the receiver.
                                let _ = sender.send(SeenRequest { connection, head, body });
                            }
                        }
                    }
                    // The client may have closed the connection first.
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { url, seen }
    }

    /// Returns the next request that the server received.
    pub fn next_request(&self) -> SeenRequest {
        self.seen.recv_timeout(Duration::from_secs(5)).unwrap()
    }
}

pub fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned))
                .map_or(0, |length| length.parse().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some((head, String::from_utf8(bytes[end + 4..end + 4 + length].to_vec()).unwrap()));
            }
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
}

pub fn send(text: impl Into<Vec<u8>>) -> ServerMove {
    ServerMove::Send(text.into())
}

/// Returns the head of a response whose body ends when the connection closes.
pub fn head(status: &str, kind: &str, headers: &str) -> ServerMove {
    send(format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{headers}\r\n"))
}

/// Returns the head of a chunked stream.
pub fn chunked() -> ServerMove {
    send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

pub fn chunk(data: &[u8]) -> ServerMove {
    send([format!("{:x}\r\n", data.len()).as_bytes(), data, b"\r\n"].concat())
}

pub fn last_chunk() -> ServerMove {
    send("0\r\n\r\n")
}
