//! Renders diagnostics as the CLI does, at a fixed width and without colors.

use std::fmt::Write as _;

use miette::{GraphicalReportHandler, GraphicalTheme};
use rye_compiler::diagnostics::{Diagnostics, Report, Severity};
use rye_grammar::Sources;

/// Width of the rendered text in columns.
const WIDTH: usize = 100;

/// Renders every diagnostic and a summary line.
pub fn render_diagnostics(diagnostics: &Diagnostics, sources: &Sources) -> String {
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(WIDTH)
        .with_wrap_lines(false)
        .with_links(false)
        .with_context_lines(1);
    let mut out = String::new();
    for diagnostic in diagnostics.iter() {
        let (header, body) = Report::new(diagnostic, sources).split_header(WIDTH);
        let _ = writeln!(out, "{}{}", header.marker, header.text);
        let mut rendered = String::new();
        match handler.render_report(&mut rendered, &body) {
            // Skips the first line: it is the message, which the header contains.
            Ok(()) => out.push_str(rendered.split_once('\n').map_or("", |(_, rest)| rest)),
            Err(_) => out.push_str("(this diagnostic cannot be rendered)\n"),
        }
        out.push('\n');
    }
    let counted: Vec<String> =
        [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Advice, "suggestion")]
            .into_iter()
            .map(|(severity, word)| (diagnostics.count(severity), word))
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
            .collect();
    let summary = if counted.is_empty() { "no problems found".to_owned() } else { counted.join(", ") };
    let _ = writeln!(out, "{summary}");
    trim_lines(&out)
}

/// Removes trailing spaces from every line.
fn trim_lines(text: &str) -> String {
    text.lines().map(str::trim_end).fold(String::with_capacity(text.len()), |mut out, line| {
        out.push_str(line);
        out.push('\n');
        out
    })
}
