//! HTTP requests of tools. A tool can reach only granted hosts, and a host with a non-public address only if a grant
//! names exactly that host. Redirects are checked in the same way as requests. Size and time are bounded. No proxies
//! and no cookies are used.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Client, Method, StatusCode, Url, redirect};
use tokio::time::timeout;

use rye_compiler::semantics::address::is_public;
use rye_compiler::semantics::needs::{is_host_inside, is_same_host};

const MAX_REDIRECTS: usize = 5;
/// Timeout for establishing a connection, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The hosts that a tool may reach, and the limits on the time of a request and the size of its response.
#[derive(Debug, Clone)]
pub struct WebClient {
    /// Granted host patterns: `api.example.com`, `*.example.com`, `*`.
    pub hosts: Vec<String>,
    /// Hosts that the grants of every thread of the spawn chain name without a wildcard. Other hosts are reached at
    /// public addresses only.
    pub local_hosts: Vec<String>,
    /// Timeout of the whole exchange, redirects and body included.
    pub timeout: Duration,
    /// Maximum number of bytes that are kept of the body of a response.
    pub max_bytes: usize,
}

/// An HTTP request of a tool, ready to be sent.
#[derive(Debug, Clone)]
pub struct WebRequest {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Vec<u8>>,
}

/// The response to an HTTP request of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebResponse {
    pub status: u16,
    /// The final URL, after redirects.
    pub url: Url,
    pub content_type: String,
    pub body: Vec<u8>,
    /// True if `body` holds only the start of the response, because the response exceeds the maximum size.
    pub cut: bool,
}

impl WebClient {
    /// Sends a request and follows redirects, each of which is checked like the first request.
    ///
    /// # Errors
    ///
    /// A message for the model: a host that is not granted, an address that is not public, or a timeout.
    pub async fn send(&self, request: WebRequest) -> Result<WebResponse, String> {
        let seconds = self.timeout.as_secs_f64();
        match timeout(self.timeout, self.follow(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(format!("no complete response within {seconds} seconds")),
        }
    }

    async fn follow(&self, mut request: WebRequest) -> Result<WebResponse, String> {
        for _ in 0..=MAX_REDIRECTS {
            let (response, next) = self.send_once(&request).await?;
            let Some(next) = next else { return self.read(response).await };
            if request.url.scheme() == "https" && next.scheme() != "https" {
                return Err(format!(
                    "{} redirects to {}, which is not encrypted",
                    displayable_url(&request.url),
                    displayable_url(&next)
                ));
            }
            let status = response.status();
            // The status 307 or 308 keeps the method and body. Any other redirect turns the request into a GET, unless
            // it is a HEAD.
            let kept = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if !kept && request.method != Method::HEAD {
                request.method = Method::GET;
                request.body = None;
            }
            // A header may contain a secret for the first host, so no header is sent to another origin.
            if next.origin() != request.url.origin() {
                request.headers = HeaderMap::new();
            }
            request.url = next;
        }
        Err(format!("more than {MAX_REDIRECTS} redirects, the last to {}", displayable_url(&request.url)))
    }

    /// Sends one request; also returns the redirect target, if there is one.
    async fn send_once(&self, request: &WebRequest) -> Result<(reqwest::Response, Option<Url>), String> {
        let granted = self.check(&request.url)?;
        let client = client_for_grant(granted)?;
        let mut builder = client.request(request.method.clone(), request.url.clone()).headers(request.headers.clone());
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        let response =
            builder.send().await.map_err(|e| format!("{}: {}", displayable_url(&request.url), failure_reason(&e)))?;
        let next = if response.status().is_redirection() {
            let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok());
            location.map(|l| {
                request.url.join(l).map_err(|_| format!("{} redirects to a bad URL", displayable_url(&request.url)))
            })
        } else {
            None
        };
        Ok((response, next.transpose()?))
    }

    /// Checks that a URL may be requested. Returns the kind of grant that allows its host, or the reason for a refusal.
    fn check(&self, url: &Url) -> Result<HostGrant, String> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("`{}:` URLs are not supported; use `https:` or `http:`", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with user and password is not allowed".to_owned());
        }
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if !self.hosts.iter().any(|pattern| is_host_inside(&host, pattern)) {
            return Err(format!("permission denied: no grant of this tool names net=\"{host}\""));
        }
        // Only grants that name the host without a wildcard can reach this machine and its network.
        let is_named = self.local_hosts.iter().any(|named| is_same_host(named, &host));
        let granted = if is_named { HostGrant::ByName } else { HostGrant::ByPattern };
        if let Ok(address) = host.parse::<IpAddr>()
            && granted == HostGrant::ByPattern
            && !is_public(address)
        {
            return Err(not_public(&host));
        }
        Ok(granted)
    }

    async fn read(&self, mut response: reqwest::Response) -> Result<WebResponse, String> {
        let content_type = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let (status, url, content_type) = (response.status().as_u16(), response.url().clone(), content_type.to_owned());
        let mut body = Vec::new();
        let mut cut = false;
        while let Some(chunk) =
            response.chunk().await.map_err(|e| format!("{}: {}", displayable_url(&url), failure_reason(&e)))?
        {
            let remaining = self.max_bytes - body.len();
            body.extend_from_slice(chunk.get(..remaining.min(chunk.len())).unwrap_or_default());
            if chunk.len() > remaining {
                cut = true;
                break;
            }
        }
        Ok(WebResponse { status, url, content_type, body, cut })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostGrant {
    ByPattern,
    /// Every thread of the spawn chain has a grant that names the host without a wildcard. Only such a host may have a
    /// non-public address, such as an address of this machine.
    ByName,
}

fn client_for_grant(granted: HostGrant) -> Result<Client, String> {
    // An error means that the process already has a default crypto provider, which rustls then uses.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        .user_agent(concat!("rye/", env!("CARGO_PKG_VERSION")));
    let builder = match granted {
        HostGrant::ByName => builder,
        HostGrant::ByPattern => builder.dns_resolver(Arc::new(PublicResolver)),
    };
    builder.build().map_err(|e| format!("no connection can be made: {e}"))
}

/// A resolver that refuses names with a non-public address. The connection uses only the addresses that the resolver
/// returns.
struct PublicResolver;

impl Resolve for PublicResolver {
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
    format!("permission denied: `{host}` is in this machine's network; only a grant that names the host can reach it")
}

/// Returns the innermost cause of a failed request.
fn failure_reason(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text: String = cause.to_string().chars().take(300).collect();
    if text.is_empty() { "the request failed".to_owned() } else { text }
}

/// Returns the first 200 characters of a URL, without query and fragment, which may contain a secret.
fn displayable_url(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    let text: String = url.as_str().chars().take(200).collect();
    text
}

#[cfg(test)]
pub(crate) mod tests;
