//! A loopback server that records the raw requests of model calls, and answers in four API formats.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A recorded request: first line, headers, and bytes of the body.
pub struct RecordedRequest {
    pub line: String,
    pub headers: Vec<String>,
    pub body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApiFormat {
    Anthropic,
    Openai,
    Responses,
    Gemini,
}

impl ApiFormat {
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Openai, Self::Responses, Self::Gemini];

    /// Returns the name of the format, the id of a provider file with the format, and the prefix of the provider's
    /// variables.
    pub fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Anthropic => ("anthropic", "anthropic", "ANTHROPIC"),
            Self::Openai => ("openai-chat", "openai", "OPENAI"),
            Self::Responses => ("openai-responses", "openai-responses", "OPENAI"),
            Self::Gemini => ("gemini", "gemini", "GEMINI"),
        }
    }

    /// Returns a reply with the text `Noted.`.
    pub fn text_reply(self) -> &'static str {
        match self {
            Self::Anthropic => ANTHROPIC,
            Self::Openai => OPENAI,
            Self::Responses => RESPONSES,
            Self::Gemini => GEMINI,
        }
    }

    /// Returns a reply that calls the tool `no_such_tool`.
    pub fn call_reply(self) -> &'static str {
        match self {
            Self::Anthropic => ANTHROPIC_CALL,
            Self::Openai => OPENAI_CALL,
            Self::Responses => RESPONSES_CALL,
            Self::Gemini => GEMINI_CALL,
        }
    }
}

/// A server that records every request and answers with given replies.
pub struct Recorder {
    pub url: String,
    pub requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

impl Recorder {
    /// Starts a server. Each request gets the next reply; after the last one, the last reply again.
    pub fn start(replies: Vec<&'static str>) -> Self {
        Self::start_with(move |n, _| {
            let reply = replies.get(n).or(replies.last()).unwrap();
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{reply}")
        })
    }

    /// Starts a server that answers each request, by its number and contents, with the text of a whole response.
    pub fn start_with(answer: impl Fn(usize, &RecordedRequest) -> String + Send + 'static) -> Self {
        Self::serve(move |n, mut stream, requests| {
            let request = read_request(&stream);
            let response = answer(n, &request);
            requests.lock().unwrap().push(request);
            stream.write_all(response.as_bytes()).unwrap();
        })
    }

    /// Starts a server that answers each request with a text. The first reply stops after its text: the end of the
    /// stream follows after `wait` returns.
    pub fn start_paced(format: ApiFormat, wait: impl FnOnce() + Send + 'static) -> Self {
        let mut wait = Some(wait);
        let reply = format.text_reply();
        let text = reply.find("Noted.").unwrap();
        let (start, end) = reply.split_at(text + reply[text..].find("\n\n").unwrap() + 2);
        Self::serve(move |_, mut stream, requests| {
            requests.lock().unwrap().push(read_request(&stream));
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            stream.write_all(format!("{head}{start}").as_bytes()).unwrap();
            if let Some(wait) = wait.take() {
                wait();
            }
            stream.write_all(end.as_bytes()).unwrap();
        })
    }

    fn serve(mut answer: impl FnMut(usize, TcpStream, &Mutex<Vec<RecordedRequest>>) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        // The thread ends with the process of the test.
        std::thread::spawn(move || {
            for (n, stream) in listener.incoming().enumerate() {
                answer(n, stream.unwrap(), &kept);
            }
        });
        Self { url, requests }
    }
}

fn read_request(stream: &TcpStream) -> RecordedRequest {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut headers = Vec::new();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        let header = header.trim_end().to_owned();
        if header.is_empty() {
            break;
        }
        if let Some(text) = header.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        headers.push(header);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    RecordedRequest { line, headers, body }
}

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Noted."}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

"#;

const OPENAI: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Noted."},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}

data: [DONE]

"#;

const RESPONSES: &str = r#"event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"id":"m","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Noted.","annotations":[]}]},"sequence_number":0}

event: response.completed
data: {"type":"response.completed","response":{"id":"r","object":"response","created_at":1,"model":"m","status":"completed","output":[{"id":"m","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Noted.","annotations":[]}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}},"sequence_number":1}

"#;

const GEMINI: &str = r#"data: {"candidates":[{"content":{"parts":[{"text":"Noted."}],"role":"model"},"index":0}],"modelVersion":"m","responseId":"r"}

data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"index":0,"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"totalTokenCount":11},"modelVersion":"m","responseId":"r"}

"#;

const ANTHROPIC_CALL: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"call_1","name":"no_such_tool","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\":\"a\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

"#;

const OPENAI_CALL: &str = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"no_such_tool","arguments":"{\"path\":\"a\"}"}}]},"finish_reason":null}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}}

data: [DONE]

"#;

const RESPONSES_CALL: &str = r#"event: response.output_item.done
data: {"type":"response.output_item.done","output_index":0,"item":{"id":"f","type":"function_call","status":"completed","call_id":"call_1","name":"no_such_tool","arguments":"{\"path\":\"a\"}"},"sequence_number":0}

event: response.completed
data: {"type":"response.completed","response":{"id":"r","object":"response","created_at":1,"model":"m","status":"completed","output":[{"id":"f","type":"function_call","status":"completed","call_id":"call_1","name":"no_such_tool","arguments":"{\"path\":\"a\"}"}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}},"sequence_number":1}

"#;

const GEMINI_CALL: &str = r#"data: {"candidates":[{"content":{"parts":[{"functionCall":{"id":"call_1","name":"no_such_tool","args":{"path":"a"}}}],"role":"model"},"index":0,"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"totalTokenCount":11},"modelVersion":"m","responseId":"r"}

"#;
