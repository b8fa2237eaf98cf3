//! Attenuation of grants: the part of a plan's grants that lies within a smaller set of capability patterns.

use rye_grammar::capability::normalize;

use super::Grant;
use crate::semantics::glob::Glob;
use crate::semantics::glob::inclusion::{Coverage, Witness, covers, covers_all, witness};

/// The result of [`narrow_grants`]: the narrowed grants, and the patterns that do not contribute to these grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NarrowedGrants {
    pub grants: Vec<Grant>,
    /// Patterns of the set that share no capability with any of the original grants.
    pub unused: Vec<String>,
    /// Pairs of a pattern and a grant that overlap, although neither covers the other. Such a pair adds nothing to
    /// `grants`.
    pub overlapping: Vec<(String, String)>,
}

/// Returns the part of the grants that lies within a set of patterns. If a pattern covers a grant, or the grant covers
/// the pattern, the result contains the narrower of the two, with the folders and hosts of the grant.
pub fn narrow_grants(grants: &[Grant], patterns: &[String]) -> NarrowedGrants {
    let mut narrowed = NarrowedGrants::default();
    for pattern in patterns {
        let wanted = normalize(pattern).0;
        let mut is_used = false;
        for grant in grants {
            let granted = normalize(&grant.pattern).0;
            let chosen = if covers(&[&granted], &wanted) == Coverage::Covered {
                &wanted
            } else if covers(&[&wanted], &granted) == Coverage::Covered {
                &granted
            } else {
                if witness(&[&Glob::new(&wanted), &Glob::new(&granted)], &[]) != Witness::None {
                    is_used = true;
                    narrowed.overlapping.push((pattern.clone(), grant.pattern.clone()));
                }
                continue;
            };
            is_used = true;
            let one = Grant { pattern: chosen.clone(), ..grant.clone() };
            if !narrowed.grants.contains(&one) {
                narrowed.grants.push(one);
            }
        }
        if !is_used {
            narrowed.unused.push(pattern.clone());
        }
    }
    narrowed
}

/// Returns true if `grants` provably allow every capability that `narrowed` allow.
pub fn is_narrower(narrowed: &[Grant], grants: &[Grant]) -> bool {
    let patterns = |grants: &[Grant]| -> Vec<String> { grants.iter().map(|one| normalize(&one.pattern).0).collect() };
    let (parents, children) = (patterns(grants), patterns(narrowed));
    let parents: Vec<&str> = parents.iter().map(String::as_str).collect();
    let children: Vec<&str> = children.iter().map(String::as_str).collect();
    covers_all(&parents, &children) == Coverage::Covered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(patterns: &[&str]) -> Vec<Grant> {
        let grant = |pattern: &&str| Grant { pattern: (*pattern).to_owned(), net: Vec::new(), write: vec![".".into()] };
        patterns.iter().map(grant).collect()
    }

    fn narrowed(granted: &[&str], wanted: &[&str]) -> NarrowedGrants {
        narrow_grants(&grants(granted), &wanted.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn narrowed_grants_are_the_common_part_and_the_old_ones_cover_them() {
        const SOME: [&str; 10] = [
            "rye.*",
            "rye.fetch.skill.*",
            "rye.fetch.skill.notes",
            "rye.fetch.*",
            "rye.execute.tool.*",
            "rye.execute.tool.rye.file-system.*",
            "rye.execute.tool.rye.file-system.read",
            "rye.execute.tool.rye/bash/bash",
            "rye.*.tool.rye.git.*",
            "rye.execute.directive.review.*",
        ];
        for granted in SOME {
            for wanted in SOME {
                let found = narrowed(&[granted, "rye.fetch.knowledge.*"], &[wanted]);
                assert!(is_narrower(&found.grants, &grants(&[granted, "rye.fetch.knowledge.*"])), "{granted} {wanted}");
                assert!(is_narrower(&found.grants, &grants(&[wanted])), "{granted} {wanted}");
            }
        }
        let patterns = |found: &NarrowedGrants| found.grants.iter().map(|one| one.pattern.clone()).collect::<Vec<_>>();
        let inside = narrowed(&["rye.execute.tool.*"], &["rye.execute.tool.a.read", "rye.fetch.*"]);
        assert_eq!(patterns(&inside), ["rye.execute.tool.a.read"]);
        assert_eq!(inside.unused, ["rye.fetch.*"]);
        assert_eq!(inside.grants.first().map(|one| one.write.len()), Some(1), "the folders of the grant stay");
        assert_eq!(patterns(&narrowed(&["rye.execute.tool.a.read"], &["rye.*"])), ["rye.execute.tool.a.read"]);
    }

    #[test]
    fn pattern_that_overlaps_a_grant_in_part_allows_nothing_and_is_reported() {
        let found = narrowed(&["rye.execute.tool.a.*"], &["rye.*.tool.a.read"]);
        assert!(found.grants.is_empty(), "{found:?}");
        assert_eq!(found.overlapping, [("rye.*.tool.a.read".to_owned(), "rye.execute.tool.a.*".to_owned())]);
        assert!(found.unused.is_empty(), "{found:?}");
    }
}
