//! What a call's run may touch: the `write` and `net` attributes of the grants that allow it, attenuated over the spawn
//! chain like the grants themselves.

use rye_compiler::plan::Grant;
use rye_compiler::semantics::capability::CapabilitySet;

/// What the thread's own matching grants name, as far as every other link's matching grants name it too.
pub(super) fn granted(
    chain: &[Vec<Grant>],
    capability: &str,
    field: impl Fn(&Grant) -> &Vec<String>,
    is_inside: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let named = |set: &[Grant]| -> Vec<String> {
        let matching = set.iter().filter(|g| CapabilitySet::new([g.pattern.clone()]).first_match(capability).is_some());
        matching.flat_map(|grant| field(grant).iter().cloned()).collect()
    };
    let Some((own, above)) = chain.split_first() else { return Vec::new() };
    let mut list = named(own);
    for set in above {
        let allowed = named(set);
        list.retain(|item| allowed.iter().any(|outer| is_inside(item, outer)));
    }
    list
}

/// Whether a folder lies in another, both relative to the project.
pub(crate) fn is_folder_inside(inner: &str, outer: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (inner, outer) = (parts(inner), parts(outer));
    !inner.iter().any(|part| part == "..") && inner.starts_with(&outer)
}

/// Whether every host of one pattern is one of the other's: `a.example.com` in `*.example.com`.
pub(crate) fn is_host_inside(inner: &str, outer: &str) -> bool {
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

    #[test]
    fn every_link_attenuates() {
        let grant = |pattern: &str, write: &[&str]| Grant {
            pattern: pattern.into(),
            net: Vec::new(),
            write: write.iter().map(|w| (*w).to_owned()).collect(),
        };
        let capability = "rye.execute.tool.a.b";
        let chain = [vec![grant("rye.execute.tool.a.*", &["out/", "tmp"])], vec![grant("rye.*", &["out"])]];
        assert_eq!(granted(&chain, capability, |g| &g.write, is_folder_inside), ["out/"]);
        assert!(granted(&chain, "rye.execute.tool.c", |g| &g.write, is_folder_inside).is_empty());
    }
}
