//! `persistent`, `pushes` and `timeout_seconds`: the lifetime of a tool's process, and its right to submit messages to
//! the chat.

use rye_grammar::data::{Kind, Node};

use super::argv::{self, ArgvPlaceholder};
use super::read::ToolSpecReader;
use super::{MAX_TIMEOUT_SECONDS, ScriptEntry, ToolKind};

impl ToolSpecReader {
    /// Returns the value of the key `persistent`. Reports `true` for a tool that cannot be persistent. The process of a
    /// persistent tool starts before the first call is known, so its command must not depend on parameters. A
    /// persistent script must have a function that the process runs for each call.
    pub(super) fn persistent(&mut self, node: &Node, kind: Option<&ToolKind>) -> bool {
        let persistent = self.flag(node, "persistent");
        let (true, Some(value), Some(kind)) = (persistent, node.get("persistent"), kind) else { return persistent };
        let refused = match kind {
            ToolKind::Script { entry: ScriptEntry::Execute, .. } => None,
            ToolKind::Script { entry: ScriptEntry::Main, .. } => {
                Some(("a persistent script needs the function `execute`, which runs once for each call", "only `main`"))
            }
            ToolKind::Script { entry: ScriptEntry::Whole, .. } => Some((
                "a shell script cannot be persistent: it runs once for each call",
                "the script ends after each call",
            )),
            ToolKind::Command { argv } => {
                let depends = argv.iter().any(|text| {
                    argv::placeholders(text).is_ok_and(|found| {
                        found.iter().any(|placeholder| match placeholder {
                            ArgvPlaceholder::Parameter(name) => !matches!(*name, "tool_path" | "project_path"),
                            ArgvPlaceholder::Variable(_) => false,
                        })
                    })
                });
                depends.then_some((
                    "the command of a persistent tool cannot use parameters: the parameters of each call arrive as a line on its standard input",
                    "this command has a parameter",
                ))
            }
            ToolKind::Builtin { .. } | ToolKind::Http(_) | ToolKind::Mcp { .. } => {
                Some(("only commands and scripts can be persistent", "this tool has no program of its own"))
            }
        };
        if let Some((message, label)) = refused {
            let help = Some(
                "remove `persistent`, or use a script with the function `execute`, or a command without parameters \
                 that reads one JSON line for each call"
                    .to_owned(),
            );
            self.report_bad_value(value.span, message.to_owned(), label, help);
        }
        true
    }

    pub(super) fn pushes(&mut self, node: &Node, persistent: bool) -> bool {
        let pushes = self.flag(node, "pushes");
        if let (true, false, Some(value)) = (pushes, persistent, node.get("pushes")) {
            let help = Some("add `persistent: true`: only a running process can submit messages".to_owned());
            self.report_bad_value(value.span, "`pushes` needs `persistent`".to_owned(), "not persistent", help);
        }
        pushes
    }

    pub(super) fn timeout(&mut self, node: &Node, default: u64) -> u64 {
        let Some(value) = node.get("timeout_seconds") else { return default };
        let seconds = if let Kind::Number(n) = &value.kind { n.as_u64() } else { None };
        if let Some(s @ 1..=MAX_TIMEOUT_SECONDS) = seconds {
            return s;
        }
        let message = format!("`timeout_seconds` must be a whole number from 1 to {MAX_TIMEOUT_SECONDS}");
        let help = "write the seconds as a number, without a unit: `timeout_seconds: 60`";
        self.report_bad_value(value.span, message, "not a time", Some(help.to_owned()));
        default
    }
}
