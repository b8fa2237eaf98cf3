//! Diagnostics as annotations of a GitHub workflow: one command per line.

use super::diagnostic::DiagnosticOutput;
use super::printable;

/// Formats a diagnostic as the workflow command `::error file=…,line=…,title=CODE::message`. Further labels and the
/// help follow the message.
pub fn format_annotation(shown: &DiagnosticOutput) -> String {
    let level = match shown.severity.as_str() {
        "error" => "error",
        "warning" => "warning",
        _ => "notice",
    };
    let mut properties = Vec::new();
    if let Some(at) = shown.labels.first() {
        properties.push(format!("file={}", escape_property(&at.file)));
        properties.push(format!("line={},endLine={}", at.line, at.end_line));
        // Columns are only supported within one line.
        if at.line == at.end_line {
            properties.push(format!("col={},endColumn={}", at.column, at.end_column));
        }
    }
    if let (None, Some(file)) = (shown.labels.first(), &shown.file) {
        properties.push(format!("file={}", escape_property(file)));
    }
    properties.push(format!("title={}", escape_property(&shown.code)));
    let help = shown.help.iter().map(|help| format!("\nhelp: {help}"));
    let others = shown.labels.iter().skip(1).map(|l| format!("\n{}:{}: {}", l.file, l.line, l.text));
    let text: String = std::iter::once(shown.message.clone()).chain(others).chain(help).collect();
    format!("::{level} {}::{}", properties.join(","), escape_data(&text))
}

fn escape_data(text: &str) -> String {
    printable(text).replace('%', "%25").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::diagnostic::LabelOutput;

    #[test]
    fn annotation_text_is_escaped() {
        let label = LabelOutput {
            file: "a,b:c.md".into(),
            line: 1,
            column: 2,
            end_line: 1,
            end_column: 4,
            text: "here".into(),
        };
        let shown = DiagnosticOutput {
            code: "rye::item::unknown".into(),
            severity: "advice".into(),
            message: "100%\n::error::x\u{202e}\u{1b}".into(),
            help: Some("do".into()),
            file: None,
            labels: vec![label],
            fix: Vec::new(),
        };
        assert_eq!(
            format_annotation(&shown),
            "::notice file=a%2Cb%3Ac.md,line=1,endLine=1,col=2,endColumn=4,title=rye%3A%3Aitem%3A%3Aunknown::100%25%0A::error::x\u{fffd}\u{fffd}%0Ahelp: do"
        );
    }
}
