//! Granted tools with a need that no grant meets: a folder, a host, or the right to sign knowledge. Every call of such
//! a tool is refused, so the palette leaves the tool out.

use crate::item::Tool;
use crate::plan::Grant;
use crate::sandbox::SandboxKind;
use crate::semantics::capability::may_sign_knowledge;
use crate::semantics::glob::Glob;
use crate::semantics::needs::{allows_host, is_folder_inside, is_host_inside, url_host};
use crate::tool_spec::ToolKind;

/// A need of a tool that no grant meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnmetNeed {
    /// The attributes or the capability that the grants lack, in backticks.
    pub need: String,
    /// The element that a directive can add to meet the need, such as `<tool net="host">`.
    pub add: String,
    /// True if the tool lacks the capability to sign knowledge.
    pub is_signature: bool,
}

/// Returns the need of a granted tool that no grant meets, so that every call is refused; `None` if a call may pass.
/// `grants` are all grants of the thread.
pub(crate) fn unmet_need(tool: &Tool, grants: &[Grant]) -> Option<UnmetNeed> {
    let needs = &tool.spec.needs;
    let requests = SandboxKind::of(&tool.spec.kind) == SandboxKind::Requests;
    if requests || !needs.write.is_empty() || !needs.net.is_empty() {
        let capability = format!("rye.execute.tool.{}", tool.file.id.dotted());
        let of_tool: Vec<&Grant> = grants.iter().filter(|g| Glob::new(&g.pattern).matches(&capability)).collect();
        let write: Vec<&str> = of_tool.iter().flat_map(|grant| grant.write.iter().map(String::as_str)).collect();
        let net: Vec<&str> = of_tool.iter().flat_map(|grant| grant.net.iter().map(String::as_str)).collect();
        if let Some(missing) = missing_needs(tool, &write, &net) {
            let (need, add) = (format!("`{missing}`"), format!("<tool {missing}>"));
            return Some(UnmetNeed { need, add, is_signature: false });
        }
    }
    let writes_knowledge = matches!(&tool.spec.kind, ToolKind::Builtin { name } if name == "knowledge_write");
    (writes_knowledge && !grants.iter().any(|grant| may_sign_knowledge(&grant.pattern))).then(|| UnmetNeed {
        need: "`rye.sign.knowledge.ID`".to_owned(),
        add: "<sign><knowledge>FOLDER.*</knowledge></sign>".to_owned(),
        is_signature: true,
    })
}

/// Returns the attributes that a grant of the tool lacks, as text such as `write="out" net="example.com"`; `None` if it
/// lacks none. `write` and `net` are the folders and hosts that are granted.
pub(crate) fn missing_needs(tool: &Tool, write: &[&str], net: &[&str]) -> Option<String> {
    let unmet = |needs: &[String], granted: &[&str], inside: fn(&str, &str) -> bool| {
        let unmet = needs.iter().filter(|need| !granted.iter().any(|outer| inside(need, outer)));
        unmet.cloned().collect::<Vec<_>>().join(",")
    };
    let needs = &tool.spec.needs;
    // A request that the engine itself sends may go only to a granted host.
    let requests = matches!(tool.spec.kind, ToolKind::Builtin { .. } | ToolKind::Http(_));
    let mut net_missing = unmet(&needs.net, net, if requests { allows_host } else { is_host_inside });
    if requests && SandboxKind::of(&tool.spec.kind) == SandboxKind::Requests && net.is_empty() && net_missing.is_empty()
    {
        net_missing = match &tool.spec.kind {
            ToolKind::Http(http) => url_host(&http.url).unwrap_or("host").to_owned(),
            ToolKind::Builtin { .. } | ToolKind::Command { .. } | ToolKind::Script { .. } | ToolKind::Mcp { .. } => {
                "host".to_owned()
            }
        };
    }
    let parts = [("write", unmet(&needs.write, write, is_folder_inside)), ("net", net_missing)];
    let parts: Vec<String> = parts.iter().filter(|(_, m)| !m.is_empty()).map(|(n, m)| format!("{n}=\"{m}\"")).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
mod tests {
    use rye_grammar::ItemId;

    use crate::compile::tests::world::{minimal_world, with_directives};
    use crate::compile::{Compilation, CompileRequest, compile};
    use crate::report::diff::diff;
    use crate::report::render::json::render;

    fn planned(grant: &str) -> Compilation {
        let tool = |needs: &str| format!("description: Does it.\nkind: command\ncommand: [ls]\n{needs}");
        let inside = format!(
            "<metadata><permissions><execute>{grant}</execute><acknowledge risk=\"elevated\">Fine.</acknowledge></permissions></metadata>"
        );
        let world = with_directives(minimal_world(), &[("leaf", "", &inside, "Do it.")])
            .project(".ai/tools/p/save.yaml", tool("needs: {write: [out/]}\n"))
            .project(".ai/tools/p/list.yaml", tool(""));
        let compiled = compile(&world, &CompileRequest::new(ItemId::parse("leaf").unwrap()));
        compiled.value.unwrap_or_else(|| panic!("{grant}: {:?}", compiled.diagnostics))
    }

    #[test]
    fn tool_with_an_unmet_need_leaves_the_palette_and_is_listed_with_the_need() {
        for (grant, offered, dropped) in [
            ("<tool>p.save</tool>", &[][..], &["p/save"][..]),
            ("<tool>p.*</tool>", &["p_list"], &["p/save"]),
            ("<tool write=\"out/\">p.*</tool>", &["p_list", "p_save"], &[]),
            ("<tool>p.*</tool><tool write=\".\">p.save</tool>", &["p_save", "p_list"], &[]),
        ] {
            let plan = planned(grant).plan;
            let names: Vec<&str> =
                plan.palette.iter().map(|tool| &*tool.name).filter(|n| n.starts_with("p_")).collect();
            assert_eq!(names, offered, "{grant}");
            assert!(plan.dropped_tools.iter().all(|tool| tool.refused), "{grant}");
            let left_out: Vec<&str> = plan.dropped_tools.iter().map(|tool| tool.item_id.as_str()).collect();
            assert_eq!(left_out, dropped, "{grant}");
        }
        let because = &planned("<tool>p.save</tool>").plan.dropped_tools[0].because;
        assert_eq!(because, "it needs `write=\"out/\"`, which no grant gives");
    }

    #[test]
    fn comparison_names_the_tool_that_a_met_need_adds_to_the_palette() {
        let [before, after] = ["<tool>p.save</tool>", "<tool write=\"out/\">p.save</tool>"]
            .map(|grant| render(&planned(grant), Vec::new()));
        let found = diff(Some(&before), Some(&after));
        let part = found.parts.iter().find(|part| part.place == "tool").unwrap();
        assert_eq!((part.id.as_str(), part.before), ("p/save", None), "{found:?}");
        assert!(found.widened && part.after.is_some(), "{found:?}");
    }
}
