//! A diagnostic in the form that `miette` renders. All labeled files are joined into one virtual text, because `miette`
//! shows the labels of only one text.

mod view;

use std::fmt;

use miette::{LabeledSpan, MietteError, SourceCode, SourceSpan, SpanContents};
use rye_grammar::Sources;

use super::{Diagnostic, Severity};
pub(crate) use view::sanitize;
use view::{SourceView, shorten};
pub use view::{breaks_line, is_unprintable};

/// Maximum number of lines that a label covers. Of a longer span, only the first lines are shown.
const MAX_LABEL_LINES: usize = 8;
/// Maximum length of a message or a label in bytes. A longer text is cut and ends in `…`.
const MAX_TEXT_BYTES: usize = 1_000;
/// Indentation of the continuation lines of a header.
const HEADER_INDENT: &str = "  ";

/// A diagnostic with the texts of its labels, ready for a `miette::ReportHandler`. Control and direction characters of
/// a user's text never reach the terminal.
#[derive(Debug)]
pub struct Report {
    code: String,
    /// The message; empty after `split_header` has moved the message to the header.
    message: String,
    help: Option<String>,
    severity: miette::Severity,
    labels: Vec<LabeledSpan>,
    views: Vec<SourceView>,
}

impl Report {
    pub fn new(diagnostic: &Diagnostic, sources: &Sources) -> Self {
        let (mut views, mut labels): (Vec<SourceView>, Vec<LabeledSpan>) = (Vec::new(), Vec::new());
        for label in diagnostic.labels() {
            let Some(source) = sources.get(label.span.source) else { continue };
            let known = views.iter().position(|v| v.source == label.span.source);
            let at = known.unwrap_or_else(|| {
                views.push(SourceView::new(label.span.source, source, views.last().map_or(0, SourceView::end)));
                views.len() - 1
            });
            let Some(view) = views.get(at) else { continue };
            let (offset, length) = view.label_range(label.span, MAX_LABEL_LINES);
            let text = Some(shorten(&sanitize(&label.text, "\u{fffd}"), MAX_TEXT_BYTES));
            let span = SourceSpan::new(offset.into(), length);
            labels.push(if labels.is_empty() {
                LabeledSpan::new_primary_with_span(text, span)
            } else {
                LabeledSpan::new_with_span(text, span)
            });
        }
        let safe_text = |text: String| shorten(&sanitize(&text, "\u{fffd}"), MAX_TEXT_BYTES);
        Self {
            code: diagnostic.full_code(),
            message: safe_text(diagnostic.message()),
            help: diagnostic.help().map(safe_text),
            severity: to_miette_severity(diagnostic.severity()),
            labels,
            views,
        }
    }

    /// Replaces the severity of the diagnostic.
    #[must_use]
    pub fn with_severity(mut self, severity: Severity) -> Self {
        self.severity = to_miette_severity(severity);
        self
    }

    /// Splits off the header, in the form of rustc: `error[rye::extends::cycle]: message`. The remaining report has the
    /// labeled source and the help. The message and the help are wrapped at spaces to a maximum line width, because a
    /// renderer that wraps text itself would break ids at hyphens.
    #[must_use]
    pub fn split_header(mut self, width: usize) -> (ReportHeader, Self) {
        let severity = match self.severity {
            miette::Severity::Error => "error",
            miette::Severity::Warning => "warning",
            miette::Severity::Advice => "advice",
        };
        let marker = format!("{severity}[{}]", self.code);
        let message = std::mem::take(&mut self.message);
        let lines = wrap(&format!("{marker}: {message}"), width.saturating_sub(HEADER_INDENT.len()));
        let lines = lines.replace('\n', &format!("\n{HEADER_INDENT}"));
        // The marker contains no space, so `wrap` cannot break it.
        let text = lines.strip_prefix(&marker).unwrap_or(&lines).to_owned();
        // Leave room for the prefix `  help: `.
        self.help = self.help.map(|help| wrap(&help, width.saturating_sub(8)));
        (ReportHeader { marker, text }, self)
    }
}

/// The first lines of a rendered diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportHeader {
    /// The severity and the code, such as `error[rye::extends::cycle]`.
    pub marker: String,
    /// The message, including the colon that separates it from `marker`. A wrapped message has several lines.
    pub text: String,
}

fn to_miette_severity(severity: Severity) -> miette::Severity {
    match severity {
        Severity::Error => miette::Severity::Error,
        Severity::Warning => miette::Severity::Warning,
        Severity::Advice => miette::Severity::Advice,
    }
}

fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if !out.is_empty() {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Report {}

impl miette::Diagnostic for Report {
    fn severity(&self) -> Option<miette::Severity> {
        Some(self.severity)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display + 'a>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        (!self.views.is_empty()).then_some(self as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        (!self.labels.is_empty()).then(|| Box::new(self.labels.iter().cloned()) as Box<_>)
    }
}

impl SourceCode for Report {
    /// Returns the lines around a span; `OutOfBounds` if the span is not inside of one file. The renderer first tries
    /// to show two labels together. After this error, it shows the files of the labels separately.
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let view = self.views.iter().find(|v| v.contains(span.offset(), span.len())).ok_or(MietteError::OutOfBounds)?;
        view.read(span, before, after).map(|contents| Box::new(contents) as Box<_>).ok_or(MietteError::OutOfBounds)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use miette::Diagnostic as _;
    use rye_grammar::{Source, Span};

    use super::*;
    use crate::diagnostics::ContextError;

    fn report(first: &str, at: (usize, usize), second: &str, also: (usize, usize)) -> Report {
        let mut sources = Sources::default();
        let a = sources.add(Source::new("a.md", first));
        let b = sources.add(Source::new("b.md", second));
        let diagnostic = Diagnostic::from(ContextError::SuppressedAndDeclared {
            id: "x\u{1b}[31m".into(),
            suppressed: Span::new(a, at.0, at.1),
            declared: Span::new(b, also.0, also.1),
        });
        Report::new(&diagnostic, &sources)
    }

    fn shown(report: &Report) -> Vec<(String, usize, usize, String)> {
        let labels = report.labels().unwrap();
        labels
            .map(|l| {
                let whole = report.read_span(l.inner(), 1, 1).unwrap();
                let exact = report.read_span(l.inner(), 0, 0).unwrap();
                let text = String::from_utf8(whole.data().to_vec()).unwrap();
                (exact.name().unwrap().to_owned(), exact.line() + 1, exact.column() + 1, text)
            })
            .collect()
    }

    #[test]
    fn labels_in_two_files_are_separate_snippets() {
        let report = report("one\ntwo\nthree\nfour\n", (4, 7), "uno\ndos\n", (4, 7));
        let found = shown(&report);
        assert_eq!(found.first().unwrap(), &("a.md".into(), 2, 1, "one\ntwo\nthree\n".into()));
        assert_eq!(found.last().unwrap(), &("b.md".into(), 2, 1, "uno\ndos\n".into()));
        let (first, last) = (report.labels.first().unwrap().offset(), report.labels.last().unwrap().offset());
        assert!(report.read_span(&SourceSpan::new(first.into(), last - first + 1), 1, 1).is_err());
    }

    #[test]
    fn control_characters_are_replaced_in_place() {
        let report = report("a\u{1b}[2Jb\u{202e}c\rd", (8, 9), "", (0, 0));
        assert!(!report.to_string().contains('\u{1b}'));
        let text = shown(&report).first().unwrap().3.clone();
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text:?}");
        assert_eq!(text.len(), "a\u{1b}[2Jb\u{202e}c\rd".len());
    }

    #[test]
    fn long_lines_and_long_spans_are_cropped() {
        let line = "é".repeat(100_000);
        let at = 100_000;
        let report = report(&line, (at, at + 60_000), &"x\n".repeat(500), (0, 900));
        let found = shown(&report);
        assert!(found.iter().all(|(.., text)| text.len() < 2_000));
        assert_eq!(found.first().unwrap().2, at / 2 + 1);
        assert_eq!(found.last().unwrap().3.lines().count(), MAX_LABEL_LINES + 1);
    }

    #[test]
    fn header_has_severity_code_and_wrapped_message() {
        let report = report("one\n", (0, 3), "", (0, 0)).with_severity(Severity::Warning);
        let (header, body) = report.split_header(50);
        assert_eq!(header.marker, "warning[rye::context::suppressed-and-declared]");
        assert!(header.text.starts_with(":\n  `x\u{fffd}[31m` is declared"), "{header:?}");
        assert!(header.text.lines().all(|line| line.chars().count() <= 50), "{header:?}");
        assert_eq!(body.to_string(), "");
        assert!(body.code().is_none() && body.help().is_some() && body.labels().is_some());
    }

    #[test]
    fn wrap_breaks_only_at_spaces() {
        assert_eq!(wrap("a `file-system` b c", 10), "a\n`file-system`\nb c");
        assert_eq!(wrap("", 10), "");
        assert_eq!(wrap("one  two", 80), "one  two");
    }

    #[test]
    fn span_behind_last_line_is_clamped() {
        let report = report("one\n\n", (5, 5), "", (0, 0));
        assert_eq!(shown(&report).first().unwrap().1, 1);
        assert_eq!(shown(&report).last().unwrap().3, "");
    }
}
