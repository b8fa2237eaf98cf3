//! A loopback server that accepts only requests of the published types: it validates each request and answers with 400
//! and the reason, or with its next stream.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::fake::read_request;
use crate::provider::{Wire, provider_schemas};

pub struct ValidatingServer {
    pub url: String,
    /// The accepted bodies, in order.
    pub taken: Arc<Mutex<Vec<Value>>>,
}

/// Returns the path that a wire sends to, and the header that contains its key.
fn path_and_key_header(wire: Wire) -> (&'static str, &'static str) {
    match wire {
        Wire::Anthropic => ("/v1/messages", "x-api-key: "),
        Wire::OpenaiChat => ("/chat/completions", "authorization: Bearer "),
        Wire::OpenaiResponses => ("/responses", "authorization: Bearer "),
        Wire::Gemini => ("/v1beta/models/model-1:streamGenerateContent?alt=sse", "x-goog-api-key: "),
        Wire::Scripted => ("", ""),
    }
}

fn validate_request(wire: Wire, head: &str, body: &str) -> Result<Value, String> {
    let (path, header) = path_and_key_header(wire);
    if !head.starts_with(&format!("POST {path} HTTP/1.1\r\n")) || !head.contains(header) {
        return Err(format!("wrong path, expected {}: {head}", wire.name()));
    }
    let body: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
    provider_schemas::validate_body(wire, &body).map(|()| body)
}

impl ValidatingServer {
    /// Answers the n-th accepted request with the n-th of `streams`, and all later requests with the last stream.
    pub fn start(wire: Wire, streams: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&taken);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let Some((head, body)) = read_request(&mut stream) else { continue };
                let (status, kind, answer) = match validate_request(wire, &head, &body) {
                    Ok(body) => {
                        let mut taken = kept.lock().unwrap();
                        let answer = streams.get(taken.len()).or(streams.last()).copied().unwrap_or_default();
                        taken.push(body);
                        ("200 OK", "text/event-stream", answer.to_owned())
                    }
                    Err(reason) => {
                        ("400 Bad Request", "application/json", json!({"error": {"message": reason}}).to_string())
                    }
                };
                let length = answer.len();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
                );
                // The client may be gone; its request is validated already.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.as_bytes()));
            }
        });
        Self { url, taken }
    }
}
