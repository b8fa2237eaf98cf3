//! Rendering of a diagnostic: with source, as plain lines, or as JSON.

use anstyle::{AnsiColor, Style};
use miette::{GraphicalReportHandler, GraphicalTheme};
use rye_compiler::diagnostics::{Diagnostic, Report, Severity};
use rye_compiler::edit::fix;
use rye_grammar::{Sources, Span};
use schemars::JsonSchema;
use serde::Serialize;

use super::printable;
use crate::present::wrap::{self, OutputStream};

/// Maximum width of a rendered diagnostic, in columns.
const MAX_WIDTH_COLUMNS: usize = 100;

/// A diagnostic in `--format json`.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DiagnosticOutput {
    /// The code, such as `rye::extends::cycle`.
    pub code: String,
    /// The severity: `error`, `warning` or `advice`.
    pub severity: String,
    pub message: String,
    pub help: Option<String>,
    /// The file that the diagnostic concerns as a whole, if it has no label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Labels, the primary one first.
    pub labels: Vec<LabelOutput>,
    /// Edits of `rye check --fix`, all in the file of the first label.
    pub fix: Vec<EditOutput>,
}

/// A range of a file with its replacement. Positions count like those of [`LabelOutput`].
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EditOutput {
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
    pub text: String,
}

/// A range of a file. Lines and columns count from 1, columns in characters; the end is exclusive.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LabelOutput {
    pub file: String,
    pub line: u32,
    pub column: u32,
    pub end_line: u32,
    pub end_column: u32,
    pub text: String,
}

impl DiagnosticOutput {
    pub fn new(diagnostic: &Diagnostic, sources: &Sources) -> Self {
        let labels = diagnostic.labels().into_iter().filter_map(|label| {
            let source = sources.get(label.span.source)?;
            let (start, end) = (source.position(label.span.start), source.position(label.span.end));
            Some(LabelOutput {
                file: source.path.to_string(),
                line: start.line,
                column: start.column,
                end_line: end.line,
                end_column: end.column,
                text: label.text,
            })
        });
        let mut labels: Vec<LabelOutput> = labels.collect();
        // A diagnostic of a whole file is shown at the start of the file.
        if labels.is_empty() {
            labels.extend(diagnostic.file().map(|file| LabelOutput {
                file: file.to_owned(),
                line: 1,
                column: 1,
                end_line: 1,
                end_column: 1,
                text: "the whole file".to_owned(),
            }));
        }
        Self {
            code: diagnostic.full_code(),
            severity: severity_name(diagnostic.severity()).to_owned(),
            message: diagnostic.message(),
            help: diagnostic.help(),
            file: diagnostic.file().map(str::to_owned),
            labels,
            fix: fix_edits(diagnostic, sources),
        }
    }

    /// Sets the severity that results from the severity overrides.
    pub fn with_severity(mut self, severity: Severity) -> Self {
        severity_name(severity).clone_into(&mut self.severity);
        self
    }
}

fn fix_edits(diagnostic: &Diagnostic, sources: &Sources) -> Vec<EditOutput> {
    let Some(fix) = fix(diagnostic, sources) else { return Vec::new() };
    let Some(source) = sources.get(fix.source) else { return Vec::new() };
    let edits = fix.edits.into_iter().map(|edit| {
        let span = Span::new(fix.source, edit.start, edit.end);
        let (start, end) = (source.position(span.start), source.position(span.end));
        EditOutput {
            line: start.line,
            column: start.column,
            end_line: end.line,
            end_column: end.column,
            text: edit.text,
        }
    });
    edits.collect()
}

pub fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Advice => "advice",
    }
}

/// Formats `file:line:column: error[code]: message`, then the other labels and the help, each on its own line.
pub fn render_plain(diagnostic: &Diagnostic, severity: Severity, sources: &Sources) -> String {
    let shown = DiagnosticOutput::new(diagnostic, sources).with_severity(severity);
    let place = |label: Option<&LabelOutput>| match label {
        Some(l) => format!("{}:{}:{}: ", l.file, l.line, l.column),
        None => String::new(),
    };
    let first = shown.labels.first();
    let mut lines = vec![format!("{}{}[{}]: {}", place(first), shown.severity, shown.code, one_line(&shown.message))];
    lines.extend(shown.labels.iter().skip(1).map(|l| format!("{}note: {}", place(Some(l)), one_line(&l.text))));
    lines.extend(shown.help.as_deref().map(|help| format!("{}help: {}", place(first), one_line(help))));
    lines.push(String::new());
    lines.join("\n")
}

fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

/// Renders `error[code]: message`, then the source of each file involved with its labels underlined, then the help.
pub fn render_with_source(diagnostic: &Diagnostic, severity: Severity, sources: &Sources) -> String {
    let is_colored = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let theme = if is_colored { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let width = wrap::fold_width(OutputStream::Error).map_or(MAX_WIDTH_COLUMNS, |width| width.min(MAX_WIDTH_COLUMNS));
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(width)
        .with_wrap_lines(false)
        .with_context_lines(1)
        .without_syntax_highlighting();
    let (header, body) = Report::new(diagnostic, sources).with_severity(severity).split_header(width);
    let mut rendered = String::new();
    if handler.render_report(&mut rendered, &body).is_err() {
        return render_plain(diagnostic, severity, sources);
    }
    // Skips the first line: it is the message, which the header contains.
    let source = rendered.split_once('\n').map_or("", |(_, rest)| rest);
    let style = if is_colored { severity_style(severity) } else { Style::new() };
    format!("{style}{}{style:#}{}\n{source}\n", header.marker, header.text)
}

fn severity_style(severity: Severity) -> Style {
    let color = match severity {
        Severity::Error => AnsiColor::Red,
        Severity::Warning => AnsiColor::Yellow,
        Severity::Advice => AnsiColor::Cyan,
    };
    Style::new().bold().fg_color(Some(color.into()))
}
