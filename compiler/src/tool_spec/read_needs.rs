//! `needs` of a tool file: the folders and hosts to which the grants of a call must give access.

use rye_grammar::Span;
use rye_grammar::data::{Kind, Node};

use crate::semantics::needs;

use super::read::ToolSpecReader;
use super::{ToolKind, ToolNeeds};

impl ToolSpecReader {
    /// Reads `needs`: the folders and hosts to which the grants must give access.
    pub(super) fn needs(&mut self, node: &Node) -> ToolNeeds {
        let Some(needs) = node.get("needs") else { return ToolNeeds::default() };
        if !matches!(needs.kind, Kind::Map(_)) {
            self.report_wrong_type(needs, "needs", "a mapping");
            return ToolNeeds::default();
        }
        self.known_keys(needs, &["net", "write", "write_only"], "`needs`");
        let (mut write, write_only) = (self.strings(needs, "write"), self.strings(needs, "write_only"));
        write.extend(write_only.iter().cloned());
        for (path, span) in &write {
            if let Some((what, label, help)) = needs::needed_folder_error(path) {
                self.report_bad_value(*span, format!("`{path}` {what}"), label, Some(help.to_owned()));
            }
        }
        let net = self.strings(needs, "net");
        for (host, span) in &net {
            if let Some(meant) = needs::suggest_host(host) {
                let help = format!("write {}", needs::host_help(host, &meant));
                self.report_bad_value(*span, format!("`{host}` names no host"), "no call can reach it", Some(help));
            }
        }
        let texts = |strings: Vec<(String, Span)>| strings.into_iter().map(|(text, _)| text).collect();
        ToolNeeds { net: texts(net), write: texts(write), write_only: texts(write_only) }
    }

    /// Reports the key `write_only` of a tool that starts no program, because only the sandbox of a program can make a
    /// folder unreadable.
    pub(super) fn check_write_only(&mut self, node: &Node, kind: Option<&ToolKind>) {
        let Some(value) = node.get("needs").and_then(|needs| needs.get("write_only")) else { return };
        match kind {
            None | Some(ToolKind::Command { .. } | ToolKind::Script { .. }) => {}
            Some(ToolKind::Builtin { .. } | ToolKind::Http(_) | ToolKind::Mcp { .. }) => {
                let text = "`write_only` is for a tool that starts a program".to_owned();
                let help = "name the folders in `write`".to_owned();
                self.report_bad_value(value.span, text, "no program of the tool writes here", Some(help));
            }
        }
    }
}
