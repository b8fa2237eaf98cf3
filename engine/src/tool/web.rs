//! Requests that a tool sends: to granted hosts alone, never to an address of this machine or its network unless a grant
//! names that very host, redirects included, bounded in size and time. No proxy, no cookies.

mod address;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Method, StatusCode, Url, redirect};
use tokio::time::timeout;

pub use address::is_public;

use crate::machine::gate::is_host_inside;

/// Redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// Until a connection stands, TLS included.
const CONNECT: Duration = Duration::from_secs(10);

/// What a tool may reach and how much of it.
#[derive(Debug, Clone)]
pub struct Web {
    /// Patterns of hosts as granted: `api.example.com`, `*.example.com`, `*`.
    pub hosts: Vec<String>,
    /// For everything, redirects and body included.
    pub timeout: Duration,
    /// Bytes of a body that are kept.
    pub max_bytes: usize,
}

/// A request, ready to be sent.
#[derive(Debug, Clone)]
pub struct Request {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Vec<u8>>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// Where the answer came from, after redirects.
    pub url: Url,
    pub content_type: String,
    pub body: Vec<u8>,
    /// The body was longer than was kept.
    pub cut: bool,
}

impl Web {
    /// Sends a request and follows redirects, each checked like the first.
    ///
    /// # Errors
    /// A sentence for the model: a host that is not granted, an address that is not public, no answer in time.
    pub async fn send(&self, request: Request) -> Result<Answer, String> {
        let seconds = self.timeout.as_secs_f64();
        match timeout(self.timeout, self.follow(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no whole answer within {seconds} seconds")),
        }
    }

    async fn follow(&self, mut request: Request) -> Result<Answer, String> {
        for _ in 0..=MAX_REDIRECTS {
            let (response, next) = self.once(&request).await?;
            let Some(next) = next else { return self.read(response).await };
            if request.url.scheme() == "https" && next.scheme() != "https" {
                return Err(format!("{} redirects to {}, which is not encrypted", shown(&request.url), shown(&next)));
            }
            let status = response.status();
            // What is not repeated word for word is asked for anew.
            let kept = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if !kept && request.method != Method::HEAD {
                request.method = Method::GET;
                request.body = None;
            }
            // A header may be a secret of the first host.
            if next.origin() != request.url.origin() {
                request.headers = HeaderMap::new();
            }
            request.url = next;
        }
        Err(format!("more than {MAX_REDIRECTS} redirects, the last to {}", shown(&request.url)))
    }

    /// One request; the place it redirects to, if it does.
    async fn once(&self, request: &Request) -> Result<(reqwest::Response, Option<Url>), String> {
        let granted = self.check(&request.url)?;
        let client = client(granted)?;
        let mut builder = client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        let response = builder.send().await.map_err(|e| format!("{}: {}", shown(&request.url), reason(&e)))?;
        let next = if response.status().is_redirection() {
            let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok());
            location
                .map(|l| request.url.join(l).map_err(|_| format!("{} redirects to no address", shown(&request.url))))
        } else {
            None
        };
        Ok((response, next.transpose()?))
    }

    /// Whether an address may be asked at all, and how its host was granted.
    fn check(&self, url: &Url) -> Result<Granted, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{}` is no web address", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("an address with a user and a password is not asked".to_owned());
        }
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let matching = self.hosts.iter().filter(|pattern| is_host_inside(&host, pattern));
        let mut granted = None;
        for pattern in matching {
            // Only a grant that spells the host out reaches into this machine and its network.
            let named = pattern.trim_end_matches('.').eq_ignore_ascii_case(&host);
            granted = Some(if named { Granted::ByName } else { granted.unwrap_or(Granted::ByPattern) });
        }
        let Some(granted) = granted else {
            return Err(format!("permission denied: no grant of this tool names net=\"{host}\""));
        };
        if let Ok(address) = host.parse::<IpAddr>()
            && granted == Granted::ByPattern
            && !is_public(address)
        {
            return Err(not_public(&host));
        }
        Ok(granted)
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<Answer, String> {
        let content_type = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (status, url, content_type) = (response.status().as_u16(), response.url().clone(), content_type.to_owned());
        let mut body = Vec::new();
        let mut cut = false;
        while let Some(chunk) = response.chunk().await.map_err(|e| format!("{}: {}", shown(&url), reason(&e)))? {
            let room = self.max_bytes - body.len();
            body.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
            if chunk.len() > room {
                cut = true;
                break;
            }
        }
        Ok(Answer { status, url, content_type, body, cut })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Granted {
    ByPattern,
    /// The grant spells the host out.
    ByName,
}

fn client(granted: Granted) -> Result<Client, String> {
    // A second installation answers an error, and the first one stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")));
    let builder = match granted {
        Granted::ByName => builder,
        Granted::ByPattern => builder.dns_resolver(Arc::new(PublicOnly)),
    };
    builder.build().map_err(|e| format!("no connection can be made: {e}"))
}

/// Resolves names, and refuses those that lead to an address that is not public. What it answers is what is connected to.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            if found.iter().any(|address| !is_public(address.ip())) {
                return Err(not_public(&host).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn not_public(host: &str) -> String {
    format!("permission denied: `{host}` lies in this machine's own network; only a grant that names it reaches there")
}

/// Why a request failed, from the cause that says most.
fn reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text: String = cause.to_string().chars().take(300).collect();
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

/// An address as it may be shown: without its query, which may hold a secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text: String = url.as_str().chars().take(200).collect();
    text
}

#[cfg(test)]
pub(crate) mod tests;
