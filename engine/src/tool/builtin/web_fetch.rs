//! `rye/web/fetch`: returns a web page as text. The attribute `net` of a grant (`<tool net="docs.rs">`) lists the hosts
//! that the tool may reach.

use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::json;

use super::{ToolFailure, ToolResult, parse_parameters};
use crate::BoxFuture;
use crate::tool::web::{WebClient, WebRequest};
use crate::tool::{Invocation, Tool, ToolOutcome};

mod html;

pub use html::html_to_text;

/// Maximum bytes of a page that are read.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// The tool `rye/web/fetch`, with its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebFetchTool {
    pub timeout: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebFetchParameters {
    url: String,
    #[serde(default)]
    raw: bool,
}

impl WebFetchTool {
    async fn act(&self, invocation: Invocation) -> ToolResult {
        let given: WebFetchParameters = parse_parameters(&invocation.parameters)?;
        let url = Url::parse(&given.url).map_err(|e| ToolFailure(format!("`url` is not a valid URL: {e}")))?;
        let accept = HeaderValue::from_static("text/html, text/plain, application/json, */*;q=0.5");
        let request =
            WebRequest { method: Method::GET, url, headers: HeaderMap::from_iter([(ACCEPT, accept)]), body: None };
        let timeout = self.timeout.min(invocation.timeout);
        let web = WebClient {
            hosts: invocation.net,
            local_hosts: invocation.local_hosts,
            timeout,
            max_bytes: MAX_PAGE_BYTES,
        };
        let answer = web.send(request).await?;
        let kind = answer.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_text = kind.is_empty()
            || kind.starts_with("text/")
            || ["json", "xml", "javascript", "yaml", "toml", "x-sh"].iter().any(|word| kind.contains(word));
        if !is_text || memchr::memchr(0, answer.body.get(..8192).unwrap_or(&answer.body)).is_some() {
            let bytes = answer.body.len();
            return Err(ToolFailure(format!("{} is not text: `{kind}`, {bytes} bytes", answer.url)));
        }
        let text = String::from_utf8_lossy(&answer.body);
        let is_html = kind.contains("html") || (kind.is_empty() && text.trim_start().starts_with('<'));
        let mut text = if is_html && !given.raw { html_to_text(&text) } else { text.into_owned() };
        if answer.cut {
            text.extend([format!("\n[cut: only the first {MAX_PAGE_BYTES} bytes were read]\n")]);
        }
        Ok(ToolOutcome {
            content: text.into(),
            is_error: answer.status >= 400,
            details: json!({"status": answer.status, "url": answer.url.as_str(), "content_type": answer.content_type}),
            was_refused: false,
        })
    }
}

impl Tool for WebFetchTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move { self.act(invocation).await.unwrap_or_else(|f| ToolOutcome::error(f.0)) })
    }
}

#[cfg(test)]
mod tests;
