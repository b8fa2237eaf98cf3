//! One diagnostic, drawn for people, on plain lines, or as JSON.

use std::fmt;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode, SourceSpan,
    SpanContents,
};
use rye_compiler::diagnostics::{Diagnostic, Severity};
use rye_grammar::{Source, Sources, Span};
use schemars::JsonSchema;
use serde::Serialize;

use super::printable;

/// A diagnostic as `--format json` prints it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DiagnosticOutput {
    /// `rye::extends::cycle`.
    pub code: String,
    /// `error`, `warning` or `advice`.
    pub severity: String,
    pub message: String,
    pub help: Option<String>,
    /// The first one is where it happened.
    pub labels: Vec<LabelOutput>,
}

/// A place in a file. Lines and columns count from 1, columns in characters; the end is the character after the last.
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
        Self {
            code: diagnostic.full_code(),
            severity: word(diagnostic.severity()).to_owned(),
            message: diagnostic.message(),
            help: diagnostic.help(),
            labels: labels.collect(),
        }
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Advice => "advice",
    }
}

/// `file:line:column: error[code]: message`, then the other places and the help, each on its own line.
pub fn plain(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let shown = DiagnosticOutput::new(diagnostic, sources);
    let place = |l: &LabelOutput| format!("{}:{}:{}: ", l.file, l.line, l.column);
    let mut labels = shown.labels.iter();
    let first = labels.next();
    let mut out = first.map(place).unwrap_or_default();
    out.push_str(&format!("{}[{}]: {}\n", shown.severity, shown.code, one_line(&shown.message)));
    for label in labels {
        out.push_str(&format!("{}note: {}\n", place(label), one_line(&label.text)));
    }
    if let Some(help) = &shown.help {
        out.push_str(&format!("{}help: {}\n", first.map(place).unwrap_or_default(), one_line(help)));
    }
    out
}

fn one_line(text: &str) -> String {
    printable(text).replace('\n', " ")
}

/// The source with its labels underlined, every file that is involved.
pub fn drawn(diagnostic: &Diagnostic, sources: &Sources) -> String {
    let choice = anstream::AutoStream::choice(&std::io::stderr());
    let theme = if choice == anstream::ColorChoice::Never {
        GraphicalTheme::unicode_nocolor()
    } else {
        GraphicalTheme::unicode()
    };
    let mut out = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(width()).without_syntax_highlighting();
    let shown = Shown::new(diagnostic, sources);
    if handler.render_report(&mut out, &shown).is_err() {
        return plain(diagnostic, sources);
    }
    out.push('\n');
    out
}

fn width() -> usize {
    100
}

/// A diagnostic over several files as miette wants it: one text in which the files lie one behind the other.
struct Shown<'a> {
    code: String,
    message: String,
    help: Option<String>,
    severity: Severity,
    labels: Vec<(Span, String)>,
    files: Vec<File<'a>>,
}

struct File<'a> {
    source: &'a Source,
    id: rye_grammar::SourceId,
    /// Where the file begins in the one text.
    base: usize,
    /// The text with control characters made harmless, byte for byte in place.
    text: String,
}

impl<'a> Shown<'a> {
    fn new(diagnostic: &Diagnostic, sources: &'a Sources) -> Self {
        let mut files: Vec<File<'a>> = Vec::new();
        let mut labels = Vec::new();
        for label in diagnostic.labels() {
            let id = label.span.source;
            let Some(source) = sources.get(id) else { continue };
            if files.iter().all(|file| file.id != id) {
                // A gap between files, so that a span at the end of one is none at the beginning of the next.
                let base = files.last().map_or(0, |file| file.base + file.text.len() + 2);
                files.push(File { source, id, base, text: harmless(&source.text) });
            }
            labels.push((label.span, printable(&label.text)));
        }
        Self {
            code: diagnostic.full_code(),
            message: printable(&diagnostic.message()),
            help: diagnostic.help().map(|help| printable(&help)),
            severity: diagnostic.severity(),
            labels,
            files,
        }
    }
}

/// Control characters of one byte become `?`, so that offsets stay; those of two bytes (U+0080…) become `??`.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && !matches!(c, '\n' | '\r' | '\t') {
            out.extend(std::iter::repeat_n('?', c.len_utf8()));
        } else {
            out.push(c);
        }
    }
    out
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl miette::Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
            Severity::Advice => miette::Severity::Advice,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let base = |span: &Span| self.files.iter().find(|file| file.id == span.source).map(|file| file.base);
        let labels = self.labels.iter().filter_map(move |(span, text)| {
            let at = base(span)? + span.start as usize;
            Some(LabeledSpan::new(Some(text.clone()), at, span.len()))
        });
        Some(Box::new(labels))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        if self.files.is_empty() { None } else { Some(self) }
    }
}

impl SourceCode for Shown<'_> {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        context_lines_before: usize,
        context_lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (start, end) = (span.offset(), span.offset() + span.len());
        // A span over two files is out of bounds, which keeps their pieces apart.
        let file = self
            .files
            .iter()
            .find(|file| file.base <= start && end <= file.base + file.text.len())
            .ok_or(MietteError::OutOfBounds)?;
        let local = SourceSpan::new((start - file.base).into(), span.len());
        let found = file.text.read_span(&local, context_lines_before, context_lines_after)?;
        Ok(Box::new(MietteSpanContents::new_named(
            file.source.path.to_string(),
            found.data(),
            SourceSpan::new((found.span().offset() + file.base).into(), found.span().len()),
            found.line(),
            found.column(),
            found.line_count(),
        )))
    }
}
