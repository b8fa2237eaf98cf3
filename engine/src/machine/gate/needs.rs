//! Folders and hosts that a call may use: the `write` and `net` attributes of its grants, attenuated over the spawn
//! chain like the grants themselves.

use rye_compiler::plan::Grant;
use rye_compiler::semantics::capability::pattern_matches;
pub(crate) use rye_compiler::semantics::needs::{is_folder_inside, is_host_inside, is_same_host};

/// Returns the folders or hosts that the spawn chain grants to a call with this capability. `field` selects the folders
/// or the hosts of a grant. Only grants whose pattern matches the capability count. The result contains each value of
/// the thread's own grants that lies inside a value of every ancestor.
pub(super) fn granted_items(
    chain: &[Vec<Grant>],
    capability: &str,
    field: impl Fn(&Grant) -> &Vec<String>,
    is_inside: impl Fn(&str, &str) -> bool,
) -> Vec<String> {
    let named = |set: &[Grant]| -> Vec<String> {
        let matching = set.iter().filter(|grant| pattern_matches(&grant.pattern, capability));
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

/// Returns the bounds on the writes of a file tool, as lists of folders: a written path must lie in a folder of every
/// list. A thread of the spawn chain adds a list if it has grants that match `capability` and all of these grants name
/// folders.
pub(super) fn write_bounds(chain: &[Vec<Grant>], capability: &str) -> Vec<Vec<String>> {
    let bound = |set: &Vec<Grant>| {
        let matches = |grant: &&Grant| pattern_matches(&grant.pattern, capability);
        let matching: Vec<&Grant> = set.iter().filter(matches).collect();
        let is_bound = !matching.is_empty() && matching.iter().all(|grant| !grant.write.is_empty());
        is_bound.then(|| matching.iter().flat_map(|grant| grant.write.iter().cloned()).collect())
    };
    chain.iter().filter_map(bound).collect()
}

/// Returns the folders that lie inside every bound. A bound is a list of folders. For the bounds `["src"]` and
/// `["src/a"]`, the result is `["src/a"]`. Empty if there are no bounds.
pub(super) fn common_folders(bounds: &[Vec<String>]) -> Vec<String> {
    let inside = |from: &[String], of: &[String]| -> Vec<String> {
        from.iter().filter(|folder| of.iter().any(|outer| is_folder_inside(folder, outer))).cloned().collect()
    };
    let Some((first, rest)) = bounds.split_first() else { return Vec::new() };
    rest.iter().fold(first.clone(), |common, bound| {
        let mut both = inside(&common, bound);
        both.extend(inside(bound, &common).into_iter().filter(|folder| !common.contains(folder)));
        both
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_bounded_by_every_thread_whose_grants_all_name_folders() {
        let grant = |pattern: &str, write: &[&str]| Grant {
            pattern: pattern.into(),
            net: Vec::new(),
            write: write.iter().map(|w| (*w).to_owned()).collect(),
        };
        let capability = "rye.execute.tool.a.b";
        let own = vec![grant("rye.execute.tool.a.*", &["out/", "tmp"]), grant("rye.execute.tool.b", &[])];
        let parent = vec![grant("rye.*", &["out"])];
        let open = vec![grant("rye.*", &["out"]), grant("rye.execute.tool.a.b", &[])];
        let bounds = write_bounds(&[own, parent, open, Vec::new()], capability);
        assert_eq!(bounds, [vec!["out/", "tmp"], vec!["out"]]);
        assert_eq!(common_folders(&bounds), ["out/", "out"]);
        assert_eq!(
            common_folders(&[vec![".".into()], vec!["out".into(), "tmp".into()], vec!["out/a".into()]]),
            ["out/a"]
        );
        assert!(common_folders(&[]).is_empty());
    }

    #[test]
    fn every_spawn_parent_attenuates_access() {
        let grant = |pattern: &str, write: &[&str]| Grant {
            pattern: pattern.into(),
            net: Vec::new(),
            write: write.iter().map(|w| (*w).to_owned()).collect(),
        };
        let capability = "rye.execute.tool.a.b";
        let chain = [vec![grant("rye.execute.tool.a.*", &["out/", "tmp"])], vec![grant("rye.*", &["out"])]];
        assert_eq!(granted_items(&chain, capability, |g| &g.write, is_folder_inside), ["out/"]);
        let hosts = |net: &[&str]| {
            let net = net.iter().map(|host| (*host).to_owned()).collect();
            vec![Grant { pattern: "rye.*".into(), net, write: Vec::new() }]
        };
        let chain_of_hosts = [hosts(&["127.0.0.1", "a.test"]), hosts(&["*", "A.test."])];
        assert_eq!(granted_items(&chain_of_hosts, capability, |g| &g.net, is_host_inside), ["127.0.0.1", "a.test"]);
        assert_eq!(granted_items(&chain_of_hosts, capability, |g| &g.net, is_same_host), ["a.test"]);
        assert!(granted_items(&chain, "rye.execute.tool.c", |g| &g.write, is_folder_inside).is_empty());
    }
}
