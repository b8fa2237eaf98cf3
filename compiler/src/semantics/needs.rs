//! Comparison of the hosts and folders that grants name (`language.md` 9), for the gate and for the comparison of two
//! plans.

use super::address::is_public;

/// Returns true if the folder `inner` is the folder `outer` or lies inside of it. Both paths are relative to the
/// project.
pub fn is_folder_inside(inner: &str, outer: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (inner, outer) = (parts(inner), parts(outer));
    !inner.iter().any(|part| part == "..") && inner.starts_with(&outer)
}

/// Returns true if a file or folder of this name is protected anywhere in a project, with everything below it. `name`
/// must be a result of [`fold_case`].
pub fn is_protected(name: &str) -> bool {
    matches!(name, ".git" | ".claude" | ".agents") || name.starts_with(".env")
}

/// Converts a name to lower case. Also converts `ſ` to `s`, because a case-folding file system treats both as equal.
pub fn fold_case(name: &str) -> String {
    name.chars().map(|c| if c == 'ſ' { 's' } else { c }).flat_map(char::to_lowercase).collect()
}

/// Returns true if a path is protected: it contains a protected name, or `.ai` without `data` as the next folder.
pub(crate) fn is_protected_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.iter().enumerate().any(|(at, part)| {
        let name = fold_case(part);
        is_protected(&name) || (name == ".ai" && parts.get(at + 1) != Some(&"data"))
    })
}

/// Returns true for an `http:` URL whose host is, judging by its name, neither this machine nor in a local network.
pub(crate) fn is_unencrypted(url: &str) -> bool {
    url.strip_prefix("http://")
        .is_some_and(|rest| !is_local(rest) && url_host(url).is_some_and(|host| !host.contains('$')))
}

/// Returns true for an address of this machine or of a local network. `rest` is the part of the URL after `http://`.
fn is_local(rest: &str) -> bool {
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    let is_private_172 = host.strip_prefix("172.").and_then(|rest| rest.split('.').next()?.parse().ok());
    rest.starts_with('[')
        || !host.contains('.')
        || [".localhost", ".local", ".internal", ".lan", ".test", ".example"].iter().any(|end| host.ends_with(end))
        || ["127.", "10.", "192.168.", "169.254."].iter().any(|start| host.starts_with(start))
        || is_private_172.is_some_and(|second: u8| (16..32).contains(&second))
}

/// Returns the error for a folder that a tool declares in `write` but that no grant can open: the end of the message
/// (its subject is the folder), the label and the help. `None` for any other folder.
pub(crate) fn needed_folder_error(path: &str) -> Option<(&'static str, &'static str, &'static str)> {
    let is_outside =
        path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..") || path.contains('\0');
    if is_outside {
        let help = "name a folder inside the project: `write: [out/]`";
        return Some(("leads out of the project", "outside", help));
    }
    let help = "let the tool write another folder: no call of this tool could run";
    is_protected_path(path).then_some(("is a protected path, which no tool may write", "protected", help))
}

/// Returns the reason why the path of a `write` attribute cannot be granted as a folder; `None` if it can.
pub(crate) fn write_path_error(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if path.trim().is_empty() {
        Some("it is empty")
    } else if path.starts_with(['/', '~']) || leaves_project(&parts) {
        Some("it leaves the project")
    } else if parts.contains(&"..") {
        Some("a path cannot contain `..`; write the folder that is meant")
    } else if path.contains('\\') {
        Some("folders are separated by `/`, not by a backslash")
    } else if path.contains([';', '\n']) || parts.iter().any(|part| part.trim() != *part) {
        Some("the value is read as one path; separate several folders with commas")
    } else if is_protected_path(path) {
        Some("the path is a protected path, which no tool may write")
    } else if matches!(path.trim(), "true" | "false" | "yes" | "no" | "on" | "off") {
        Some("a folder is expected, not a boolean; if a folder has this name, write a `/` after the name")
    } else if path.contains(['*', '?', '[']) {
        Some("a path cannot be a pattern")
    } else {
        None
    }
}

/// The extent to which a granted host pattern covers another one (`host_coverage`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HostCoverage {
    None,
    /// The pattern is a wildcard, which allows only public addresses. A pattern without a wildcard allows its host at
    /// every address.
    PublicAddresses,
    Complete,
}

/// Returns the extent to which the granted pattern `outer` allows what the granted pattern `inner` allows. A host that
/// has only local addresses is not covered by a wildcard.
pub(crate) fn host_coverage(inner: &str, outer: &str) -> HostCoverage {
    if is_same_host(inner, outer) {
        return HostCoverage::Complete;
    }
    if !is_host_inside(inner, outer) {
        return HostCoverage::None;
    }
    if inner == "*" || inner.starts_with("*.") {
        return HostCoverage::Complete;
    }
    let name = inner.trim_end_matches('.').to_ascii_lowercase();
    match name.parse().map(is_public) {
        Ok(true) => HostCoverage::Complete,
        Ok(false) => HostCoverage::None,
        Err(_) if name == "localhost" || name.ends_with(".localhost") => HostCoverage::None,
        Err(_) => HostCoverage::PublicAddresses,
    }
}

/// Returns true if the granted pattern `outer` lets requests of the engine reach the host or pattern `inner`.
pub(crate) fn allows_host(inner: &str, outer: &str) -> bool {
    host_coverage(inner, outer) != HostCoverage::None
}

/// Returns true if two texts are the same host or pattern. Case and a dot at the end have no meaning.
pub fn is_same_host(one: &str, other: &str) -> bool {
    one.trim_end_matches('.').eq_ignore_ascii_case(other.trim_end_matches('.'))
}

/// Returns the host of a URL, without user information and port. `None` if the text is no URL, or if its host contains
/// a placeholder or is an IPv6 address.
pub(crate) fn url_host(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?.split(':').next()?;
    (!host.is_empty() && !host.contains(['{', '['])).then_some(host)
}

/// Returns true if the segments of a path lead out of the folder in which the path starts.
fn leaves_project(parts: &[&str]) -> bool {
    let mut depth = 0_usize;
    parts.iter().any(|part| {
        if *part != ".." {
            depth += 1;
            return false;
        }
        depth.checked_sub(1).map(|above| depth = above).is_none()
    })
}

/// Returns true if `outer` matches the name of every host that `inner` matches: `*.example.com` contains
/// `a.example.com`. The addresses of the hosts are not compared.
pub fn is_host_inside(inner: &str, outer: &str) -> bool {
    if is_same_host(inner, outer) || outer == "*" {
        return true;
    }
    let (inner, outer) = (inner.to_ascii_lowercase(), outer.to_ascii_lowercase());
    let bare = inner.strip_prefix("*.").unwrap_or(&inner);
    outer.strip_prefix("*.").is_some_and(|domain| bare.len() > domain.len() && bare.ends_with(&format!(".{domain}")))
}

/// Checks a text that must be a host without scheme, path or port: `api.example.com`, `*.example.com` or `*`. Returns
/// `None` if the text is valid. Otherwise returns the host that the text probably means, or an empty text if that is
/// unclear.
pub(crate) fn suggest_host(text: &str) -> Option<String> {
    if is_host(text) {
        return None;
    }
    let behind = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = behind.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    Some(if is_host(host) { host.to_owned() } else { String::new() })
}

/// Returns the help for a text that is not a host. The help names the host that the text probably means: `meant`, which
/// is empty if the meaning is unclear.
pub(crate) fn host_help(text: &str, meant: &str) -> String {
    let several: Vec<&str> = text.split([' ', ';', '|', '\n']).filter(|part| !part.is_empty()).collect();
    if several.len() > 1 && several.iter().all(|part| is_host(part)) {
        return format!("hosts separated by commas: `{}`", several.join(","));
    }
    match (text.to_ascii_lowercase().as_str(), meant) {
        ("true" | "yes" | "on" | "any" | "all", _) => {
            "the hosts that calls may reach, such as `api.example.com`, or `*` for every host".to_owned()
        }
        ("false" | "no" | "off" | "none", _) => {
            "a host, such as `api.example.com`; without `net`, calls reach no host".to_owned()
        }
        (range, _) if is_address_range(range) => {
            "a host name or one address, such as `10.0.0.1`: a range of addresses cannot be granted".to_owned()
        }
        (_, meant) => {
            let meant = if meant.is_empty() { "api.example.com" } else { meant };
            format!("only a host name, such as `{meant}`, without scheme, path and port")
        }
    }
}

/// Returns true for a range of addresses: `10.0.0.0/8`.
fn is_address_range(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let is_address = address.parse::<std::net::IpAddr>().is_ok();
        is_address && !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_host(text: &str) -> bool {
    // These words are meant as a switch (such as `net="true"`), and no host has one of these names.
    let is_switch =
        ["true", "false", "yes", "no", "on", "off", "any", "all", "none"].iter().any(|w| text.eq_ignore_ascii_case(w));
    if is_switch {
        return false;
    }
    let name = text.strip_prefix("*.").unwrap_or(text);
    let is_v6 = name.matches(':').count() > 1;
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_') || (is_v6 && b == b':');
    text == "*" || (!name.is_empty() && name.bytes().all(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_hosts_get_a_suggestion() {
        for host in ["api.example.com", "*.example.com", "*", "localhost", "127.0.0.1", "::1", "a_b.test"] {
            assert_eq!(suggest_host(host), None, "{host}");
        }
        for (text, meant) in [
            ("true", ""),
            ("Yes", ""),
            ("all", ""),
            ("https://api.example.com", "api.example.com"),
            ("http://me@api.example.com:8080/v1?x", "api.example.com"),
            ("api.example.com/v1", "api.example.com"),
            ("localhost:8080", "localhost"),
            ("https://*.example.com/", "*.example.com"),
            ("api.*.com", ""),
            ("", ""),
            ("a b", ""),
        ] {
            assert_eq!(suggest_host(text).as_deref(), Some(meant), "{text}");
        }
    }

    #[test]
    fn invalid_write_paths_are_rejected() {
        for path in ["out/", ".", "./", "a/b.txt", ".ai/data/", "sub/.ai/data/x", "...", "~/x"] {
            assert_eq!(write_path_error(path).is_some(), path.starts_with('~'), "{path}");
        }
        for path in [
            "",
            " ",
            "/",
            "/etc",
            "~/.config",
            "../",
            "a/../../x",
            ".ai/",
            "a/.git/hooks",
            ".ENV.local",
            ".ai/state",
            "out/*",
            "drafts/ src/",
            "drafts/;src/",
            "drafts;src",
        ] {
            assert!(write_path_error(path).is_some(), "{path}");
        }
        assert_eq!(write_path_error("my notes/"), None);
        let why = |path| write_path_error(path).unwrap_or_default();
        assert_eq!(why("a/../../x"), "it leaves the project");
        assert!(why("drafts/../src/").contains("cannot contain `..`"));
    }

    #[test]
    fn folders_and_hosts_compare_by_whole_segments() {
        assert!(is_folder_inside("out/a", "out/"));
        assert!(is_folder_inside("out", "./out"));
        assert!(!is_folder_inside("output", "out"));
        assert!(!is_folder_inside("out/../src", "out"));
        assert!(is_host_inside("api.example.com", "*.example.com"));
        assert!(is_host_inside("*.eu.example.com", "*.example.com"));
        assert!(!is_host_inside("example.com", "*.example.com"));
        assert!(!is_host_inside("badexample.com", "*.example.com"));
        assert!(!is_host_inside("*", "*.example.com"));
    }

    #[test]
    fn wildcard_covers_no_host_that_is_spelt_out_and_local() {
        use HostCoverage::{Complete, None, PublicAddresses};
        for (inner, outer, coverage) in [
            ("127.0.0.1", "*", None),
            ("169.254.169.254", "*", None),
            ("10.0.0.1", "*", None),
            ("fe80::1", "*", None),
            ("::ffff:127.0.0.1", "*", None),
            ("LocalHost.", "*", None),
            ("a.localhost", "*.localhost", None),
            ("127.0.0.1", "127.0.0.1", Complete),
            ("localhost", "Localhost.", Complete),
            ("8.8.8.8", "*", Complete),
            ("*.localhost", "*", Complete),
            ("*.a.test", "*.test", Complete),
            ("doc.a.test", "*.a.test", PublicAddresses),
            ("printer", "*", PublicAddresses),
            ("a.test", "b.test", None),
            ("*", "*.test", None),
        ] {
            assert_eq!(host_coverage(inner, outer), coverage, "{inner} in {outer}");
        }
    }

    #[test]
    fn host_of_a_url_excludes_user_port_and_path() {
        for (url, host) in [
            ("http://user:pw@host.test:80/x?y", Some("host.test")),
            ("https://host.test?x@y", Some("host.test")),
            ("http://{host}/", Option::None),
            ("http://[::1]/", Option::None),
            ("host.test", Option::None),
        ] {
            assert_eq!(url_host(url), host, "{url}");
        }
    }
}
