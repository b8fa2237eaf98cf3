//! Whether one host or folder that a grant names lies in another (`language.md` 9): for the gate, and for the comparison
//! of two plans.

/// Whether a folder lies in another, both relative to the project.
pub fn is_folder_inside(inner: &str, outer: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (inner, outer) = (parts(inner), parts(outer));
    !inner.iter().any(|part| part == "..") && inner.starts_with(&outer)
}

/// Whether every host of one pattern is one of the other's: `a.example.com` in `*.example.com`.
pub fn is_host_inside(inner: &str, outer: &str) -> bool {
    if inner.eq_ignore_ascii_case(outer) || outer == "*" {
        return true;
    }
    let (inner, outer) = (inner.to_ascii_lowercase(), outer.to_ascii_lowercase());
    let bare = inner.strip_prefix("*.").unwrap_or(&inner);
    outer.strip_prefix("*.").is_some_and(|domain| bare.len() > domain.len() && bare.ends_with(&format!(".{domain}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_hosts_are_compared_whole() {
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
}
