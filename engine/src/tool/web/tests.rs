//! Tests of requests: grants, redirects, size limits. The servers run in this process.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Starts a server on the loopback interface that answers at most 32 requests. `answer` gets the text of a request and
/// returns the response.
pub(crate) async fn serve(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for _ in 0..32 {
            let Ok((mut stream, _)) = listener.accept().await else { return };
            let mut bytes = Vec::new();
            let mut chunk = [0_u8; 4096];
            loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length =
                        head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                    if body.len() >= length.unwrap_or(0) {
                        stream.write_all(answer(&text).as_bytes()).await.ok();
                        break;
                    }
                }
                let Ok(n @ 1..) = stream.read(&mut chunk).await else { break };
                bytes.extend_from_slice(chunk.get(..n).unwrap_or_default());
            }
        }
    });
    address
}

pub(crate) fn http(status: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    format!("{text}\r\n{body}")
}

fn web(hosts: &[&str]) -> WebClient {
    WebClient {
        hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        local_hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        timeout: Duration::from_secs(5),
        max_bytes: 1000,
    }
}

fn get(url: &str) -> WebRequest {
    let headers = HeaderMap::from_iter([(reqwest::header::AUTHORIZATION, "secret".parse().unwrap())]);
    WebRequest { method: Method::GET, url: Url::parse(url).unwrap(), headers, body: None }
}

#[tokio::test]
async fn loopback_needs_a_grant_by_name() {
    let address = serve(|_| http("200 OK", &[("content-type", "text/plain")], "hello")).await;
    let url = format!("http://{address}/");
    let answer = web(&["127.0.0.1"]).send(get(&url)).await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice(), answer.cut), (200, b"hello".as_slice(), false));
    for (hosts, url) in [
        (&["*"][..], url.clone()),
        (&["*"], format!("http://localhost:{}/", address.port())),
        (&["*.localhost"], format!("http://a.localhost:{}/", address.port())),
        (&["*"], format!("http://[::ffff:127.0.0.1]:{}/", address.port())),
        (&["*"], format!("http://2130706433:{}/", address.port())),
        (&["*"], format!("http://0x7f.1:{}/", address.port())),
        (&["*"], "http://169.254.169.254/latest/meta-data/".to_owned()),
    ] {
        let refused = web(hosts).send(get(&url)).await.unwrap_err();
        assert!(refused.contains("is in this machine's network") || refused.contains("lookup"), "{url}: {refused}");
    }
    assert!(
        web(&["example.com"])
            .send(get(&url))
            .await
            .unwrap_err()
            .contains("no grant of this tool names net=\"127.0.0.1\"")
    );
    assert!(web(&[]).send(get(&url)).await.is_err());
    assert!(web(&["*"]).send(get("http://user:pw@example.com/")).await.unwrap_err().contains("user and password"));
    assert!(web(&["*"]).send(get("file:///etc/passwd")).await.unwrap_err().contains("`file:` URLs are not supported"));
}

#[tokio::test]
async fn local_address_is_refused_if_an_ancestor_grants_only_a_wildcard() {
    let address = serve(|_| http("200 OK", &[], "hello")).await;
    for host in ["127.0.0.1", "localhost"] {
        let url = format!("http://{host}:{}/", address.port());
        let mut narrowed = web(&[host]);
        narrowed.local_hosts.clear();
        let refused = narrowed.send(get(&url)).await.unwrap_err();
        assert!(refused.contains("is in this machine's network"), "{refused}");
        assert_eq!(web(&[host]).send(get(&url)).await.unwrap().body, b"hello");
    }
}

#[tokio::test]
async fn redirects_are_checked_like_first_requests() {
    let inside = serve(|_| http("200 OK", &[], "inside")).await;
    let target = format!("http://127.0.0.1:{}/x", inside.port());
    let outside = serve(move |_| http("302 Found", &[("location", &target)], "")).await;
    let url = format!("http://localhost:{}/", outside.port());
    assert!(web(&["localhost"]).send(get(&url)).await.unwrap_err().contains("no grant of this tool names"));
    let answer = web(&["localhost", "127.0.0.1"]).send(get(&url)).await.unwrap();
    assert_eq!(answer.body, b"inside");
    let endless = serve(|_| http("301 Moved", &[("location", "/again")], "")).await;
    let url = format!("http://{endless}/");
    assert!(web(&["127.0.0.1"]).send(get(&url)).await.unwrap_err().starts_with("more than 5 redirects"));
    let elsewhere = serve(|_| http("302 Found", &[("location", "file:///etc/passwd")], "")).await;
    let url = format!("http://{elsewhere}/");
    assert!(web(&["*", "127.0.0.1"]).send(get(&url)).await.unwrap_err().contains("`file:` URLs are not supported"));
}

#[tokio::test]
async fn redirect_drops_headers_and_body() {
    let second = serve(|request| http("200 OK", &[], request)).await;
    let target = format!("http://127.0.0.1:{}/x", second.port());
    let first = serve(move |_| http("303 See Other", &[("location", &target)], "")).await;
    let mut request = get(&format!("http://127.0.0.1:{}/", first.port()));
    request.method = Method::POST;
    request.body = Some(b"private".to_vec());
    let answer = web(&["127.0.0.1"]).send(request).await.unwrap();
    let echoed = String::from_utf8(answer.body).unwrap().to_lowercase();
    assert!(echoed.starts_with("get /x"), "{echoed}");
    assert!(!echoed.contains("secret") && !echoed.contains("private"), "{echoed}");
}

#[tokio::test]
async fn size_and_time_are_bounded() {
    let large = serve(|_| http("200 OK", &[], &"x".repeat(100_000))).await;
    let answer = web(&["127.0.0.1"]).send(get(&format!("http://{large}/"))).await.unwrap();
    assert_eq!((answer.body.len(), answer.cut), (1000, true));
    let slow = serve(|_| "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nfive ".to_owned()).await;
    let mut brief = web(&["127.0.0.1"]);
    brief.timeout = Duration::from_millis(400);
    assert!(brief.send(get(&format!("http://{slow}/"))).await.is_err());
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(web(&["127.0.0.1"]).send(get(&format!("http://{gone}/"))).await.is_err());
}
