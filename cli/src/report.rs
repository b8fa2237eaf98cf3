//! Output: results to stdout, messages to stderr, diagnostics in the requested format.

pub mod bounded;
pub mod diagnostic;
pub mod github;
pub mod sarif;

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use rye_compiler::diagnostics::{Diagnostic, Diagnostics, Severity, is_unprintable};
use rye_grammar::Sources;
use serde::Serialize;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::{Color, Format, Global};
use crate::present::wrap::{self, OutputStream};
use crate::report::bounded::BoundedDiagnostics;
use crate::resource_limits::help_for_limit;

/// The output settings of this invocation.
#[derive(Debug, Clone)]
pub struct Printer {
    format: Format,
    quiet: bool,
    verbose: u8,
    /// True if log lines are printed to stderr.
    has_log: bool,
    /// The codes of the printed diagnostics, for the hint about `rye explain` at the end of the command.
    explained: RefCell<ExplainHint>,
}

/// The data of the hint about `rye explain` at the end of a command. `codes` are the codes of the printed diagnostics,
/// in order of first appearance. `to_stdout` is true if the hint is printed to stdout instead of stderr.
#[derive(Debug, Clone, Default)]
struct ExplainHint {
    codes: Vec<String>,
    to_stdout: bool,
}

/// Maximum number of diagnostic codes that the hint at the end of a command lists.
const MAX_EXPLAINED_CODES: usize = 5;
/// Maximum number of warnings that is printed by a command whose purpose is not to check files, such as `rye run`.
const MAX_BRIEF_WARNINGS: usize = 5;

/// Returns the first sentence of the page of a diagnostic code, with its period.
pub fn first_sentence(page: &str) -> String {
    let mut paragraphs = page.split("\n\n").map(str::trim);
    let meaning = paragraphs.find(|part| !part.is_empty() && !part.starts_with('#')).unwrap_or_default();
    let mut text = meaning.lines().collect::<Vec<_>>().join(" ");
    text.truncate(text.find(". ").map_or(text.len(), |at| at + 1));
    text
}

impl Printer {
    /// Creates a printer from the global options, and sets the color choice of the whole process.
    pub fn new(global: &Global) -> Self {
        let format = global.format.format();
        let choice = match (format, global.color) {
            (Format::Plain | Format::Json, _) | (Format::Human, Color::Never) => ColorChoice::Never,
            (Format::Human, Color::Always) => ColorChoice::Always,
            (Format::Human, Color::Auto) => ColorChoice::Auto,
        };
        choice.write_global();
        Self { format, quiet: global.quiet, verbose: global.verbose, has_log: false, explained: RefCell::default() }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// Prints a line of the result to stdout.
    #[expect(clippy::unused_self, reason = "every command prints through its report")]
    pub fn line(&self, text: &str) -> Result<(), CommandError> {
        let out = io::stdout();
        let text = if out.is_terminal() { mask_controls(text) } else { Cow::Borrowed(text) };
        // Remove styles in memory and write the result at once: an `AutoStream` on stdout would write each piece
        // between two styles separately.
        let mut shown = AutoStream::new(Vec::new(), AutoStream::choice(&out));
        writeln!(shown, "{text}")?;
        Ok(out.lock().write_all(&shown.into_inner())?)
    }

    /// Prints lines of a result. Writes many lines at once.
    pub fn lines(&self, lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), CommandError> {
        batch_lines(lines, |batch| self.line(batch))
    }

    /// Prints a text to stdout as the result of the command. The human format folds the text to the terminal's width.
    pub fn text(&self, text: &str) -> Result<(), CommandError> {
        self.line(&self.fold(text))
    }

    /// Returns a text folded to the width of the terminal, or unchanged in a format for programs.
    pub fn fold<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match wrap::fold_width(OutputStream::Out).filter(|_| self.format == Format::Human) {
            Some(width) => Cow::Owned(wrap::fold(text, width)),
            None => Cow::Borrowed(text),
        }
    }

    /// Prints a whole result as JSON on one line to stdout.
    pub fn json(&self, value: &impl Serialize) -> Result<(), CommandError> {
        let text = serde_json::to_string(value).map_err(std::io::Error::other)?;
        self.line(&escape_json_controls(&text))
    }

    pub fn set_log(&mut self, has_log: bool) {
        self.has_log = has_log;
    }

    /// Returns true if log lines are printed to stderr, so that nothing may be repainted there.
    pub fn has_log(&self) -> bool {
        self.has_log
    }

    /// Returns true if only results and errors are printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints a message to stderr, unless `-q` is set. A closed stderr is ignored.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            let text = if self.format == Format::Human { wrap::fold_for_stderr(text) } else { text.to_owned() };
            writeln!(anstream::stderr().lock(), "{}", mask_controls(&text)).ok();
        }
    }

    /// Prints a message to stderr if `-v` is set.
    pub fn detail(&self, text: &str) {
        if self.verbose > 0 {
            writeln!(anstream::stderr().lock(), "{}", mask_controls(text)).ok();
        }
    }

    /// Prints every diagnostic to stderr. JSON output contains them in the result instead.
    pub fn diagnostics(&self, diagnostics: &Diagnostics, sources: &Sources) {
        let text = self.format_diagnostics(diagnostics.iter().map(|one| (one, one.severity())), sources);
        write!(anstream::stderr().lock(), "{text}").ok();
    }

    /// Prints the diagnostics of a plan to stderr, for commands that do something other than check: errors in full,
    /// each warning as one line, and no advice. `rye check` prints all of them in full.
    pub fn brief_diagnostics(&self, diagnostics: &Diagnostics, sources: &Sources) {
        let errors = diagnostics.iter().filter(|one| one.is_error()).map(|one| (one, Severity::Error));
        let mut text = self.format_diagnostics(errors, sources);
        let warnings: Vec<&Diagnostic> = diagnostics.iter().filter(|one| one.severity() == Severity::Warning).collect();
        if self.quiet || self.format == Format::Json || warnings.is_empty() {
            write!(anstream::stderr().lock(), "{text}").ok();
            return;
        }
        for one in warnings.iter().take(MAX_BRIEF_WARNINGS) {
            let plain = diagnostic::render_plain(one, Severity::Warning, sources);
            let line = plain.lines().next().unwrap_or_default();
            text.push_str(&if self.format == Format::Human { wrap::fold_for_stderr(line) } else { line.to_owned() });
            text.push('\n');
        }
        let more = warnings.len().saturating_sub(MAX_BRIEF_WARNINGS);
        let more = if more == 0 { String::new() } else { format!("further warnings: {more}; ") };
        text.extend([format!("note: {more}`rye check` prints the warnings in full\n")]);
        write!(anstream::stderr().lock(), "{text}").ok();
    }

    /// Prints the diagnostics that are the result of the command, with their effective severity: to stderr in human
    /// output, to stdout in plain output.
    pub fn checked_diagnostics<'d>(
        &self,
        diagnostics: impl Iterator<Item = (&'d Diagnostic, Severity)>,
        sources: &Sources,
    ) -> Result<(), CommandError> {
        let text = self.format_diagnostics(diagnostics, sources);
        if self.format == Format::Plain {
            self.explained.borrow_mut().to_stdout = true;
            write!(anstream::stdout().lock(), "{text}")?;
        } else {
            write!(anstream::stderr().lock(), "{text}").ok();
        }
        Ok(())
    }

    fn format_diagnostics<'d>(
        &self,
        diagnostics: impl Iterator<Item = (&'d Diagnostic, Severity)>,
        sources: &Sources,
    ) -> String {
        let wanted = diagnostics.filter(|(_, severity)| !self.quiet || *severity == Severity::Error);
        let BoundedDiagnostics { printed, omitted } = bounded::bound(wanted, sources);
        let mut out = String::new();
        for (one, severity) in printed {
            match self.format {
                Format::Human => out.push_str(&diagnostic::render_with_source(one, severity, sources)),
                Format::Plain => out.push_str(&diagnostic::render_plain(one, severity, sources)),
                Format::Json => return out,
            }
            let codes = &mut self.explained.borrow_mut().codes;
            let code = one.full_code();
            if !codes.contains(&code) {
                codes.push(code);
            }
        }
        for rest in omitted {
            out.push_str("note: ");
            out.push_str(&printable(&rest.to_string()));
            out.push('\n');
        }
        out
    }

    /// Prints the hint about `rye explain` for the diagnostics that were printed since the last hint, to the same
    /// stream as the diagnostics. Called at the end of the command, and after each check of `--watch`. Prints nothing
    /// if `-q` is set.
    pub fn explain_hint(&self) {
        let hint = self.explained.take();
        let Some(text) = format_explain_hint(&hint.codes).filter(|_| !self.quiet) else { return };
        // A closed stream is ignored: the diagnostics were printed before.
        if hint.to_stdout {
            writeln!(anstream::stdout().lock(), "{text}").ok();
        } else {
            writeln!(anstream::stderr().lock(), "{text}").ok();
        }
    }

    /// Prints a failure and returns its exit code.
    pub fn failure(&self, failure: &CommandError) -> Exit {
        let failure = &with_help_for_limit(failure);
        match (failure.exit, self.format) {
            (Exit::Success, _) => {}
            (_, Format::Json) => return print_failure_json(failure),
            (_, Format::Human | Format::Plain) => {
                let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
                let mut out = anstream::stderr().lock();
                let fold =
                    |text: String| if self.format == Format::Human { wrap::fold_for_stderr(&text) } else { text };
                let message = fold(format!("{red}error{red:#}: {}", printable(&failure.message)));
                writeln!(out, "{message}").ok();
                if let Some(help) = &failure.help {
                    let help = fold(format!("  help: {}", printable(help)));
                    writeln!(out, "{help}").ok();
                }
            }
        }
        failure.exit
    }
}

/// Adds a help text to a failure whose cause is an exhausted limit of the system. A help text that the failure already
/// has is kept.
fn with_help_for_limit(failure: &CommandError) -> Cow<'_, CommandError> {
    match help_for_limit(&failure.message) {
        Some(help) if failure.help.is_none() && !failure.message.contains("free some space") => {
            Cow::Owned(failure.clone().with_help(help))
        }
        Some(_) | None => Cow::Borrowed(failure),
    }
}

/// Formats the hint about `rye explain`; `None` without codes.
fn format_explain_hint(codes: &[String]) -> Option<String> {
    match codes {
        [] => None,
        [code] => Some(format!("for more information about an error, run `rye explain {code}`")),
        codes => {
            let mut text = "for more information about an error, run `rye explain CODE` with one of: ".to_owned();
            let listed: Vec<&str> = codes.iter().take(MAX_EXPLAINED_CODES).map(String::as_str).collect();
            text.push_str(&listed.join(", "));
            if codes.len() > MAX_EXPLAINED_CODES {
                text.push_str(", …");
            }
            Some(text)
        }
    }
}

/// Prints a failure as JSON and returns its exit code.
pub fn print_failure_json(failure: &CommandError) -> Exit {
    let code = failure.code.unwrap_or(match failure.exit {
        Exit::Usage => "usage",
        Exit::Refused => "refused",
        Exit::Success | Exit::Failed | Exit::PermissionsWidened | Exit::Limit | Exit::Cancelled => "failed",
    });
    let (message, help) = (failure.message.clone(), failure.help.clone());
    let output = ErrorOutput { error: ErrorDetail { code: code.to_owned(), message, help } };
    if let Ok(error) = serde_json::to_string(&output) {
        writeln!(anstream::stdout().lock(), "{}", escape_json_controls(&error)).ok();
    }
    failure.exit
}

/// Output of any failed command with `--format json`.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct ErrorOutput {
    pub error: ErrorDetail,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct ErrorDetail {
    /// Kind of the error: `usage`, `refused`, `failed`, or a code that `rye explain` explains.
    pub code: String,
    pub message: String,
    pub help: Option<String>,
}

/// Maximum bytes of the lines that are printed together. A longer line is printed alone.
const MAX_BATCH_BYTES: usize = 64 * 1024;

/// Joins lines, and passes the joined lines to `print` in batches.
fn batch_lines<E>(
    lines: impl IntoIterator<Item = impl AsRef<str>>,
    mut print: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let (mut batch, mut is_empty) = (String::new(), true);
    for line in lines {
        let line = line.as_ref();
        if !is_empty && batch.len() + line.len() > MAX_BATCH_BYTES {
            print(&batch)?;
            batch.clear();
            is_empty = true;
        }
        if !is_empty {
            batch.push('\n');
        }
        batch.push_str(line);
        is_empty = false;
    }
    if is_empty { Ok(()) } else { print(&batch) }
}

/// Replaces control characters and invisible characters, so that text of files and servers cannot move the cursor,
/// change colors, reverse text or hide a part of a name. A zero-width joiner after an ASCII character has no effect, so
/// it is replaced too.
pub fn printable(text: &str) -> String {
    let mut before = None;
    let show = |c: char| {
        let is_stray_joiner =
            matches!(c, '\u{200c}' | '\u{200d}') && before.is_none_or(|before: char| before.is_ascii());
        before = Some(c);
        if is_unprintable(c) || is_stray_joiner { '\u{FFFD}' } else { c }
    };
    text.chars().map(show).collect()
}

/// Replaces the control characters of a styled text by U+FFFD, except in the escape sequences of colors and styles. All
/// messages of a command pass through this function. If a text of a file was not passed through [`printable`], it can
/// therefore change only the colors and styles of the terminal.
pub fn mask_controls(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = style_length(rest);
        let (part, after) = rest.split_at(if style == 0 { c.len_utf8() } else { style });
        shown.push_str(if style == 0 && is_unprintable(c) { "\u{FFFD}" } else { part });
        rest = after;
    }
    Cow::Owned(shown)
}

/// Returns the length of the escape sequence of a color or a style (SGR) that a text starts with; 0 if there is none.
fn style_length(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\x1b[") else { return 0 };
    let after = parameters.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, ';' | ':'));
    if after.starts_with('m') { text.len() - after.len() + 1 } else { 0 }
}

/// Escapes the non-ASCII characters of a JSON text that control a terminal. JSON allows these characters in strings
/// without an escape. The JSON value stays the same.
pub fn escape_json_controls(json: &str) -> Cow<'_, str> {
    // JSON allows ASCII control characters only outside of strings, such as line ends, so they are not escaped.
    let is_escaped = |c: char| !c.is_ascii() && is_unprintable(c);
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_escaped(c) {
            escaped.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_styles_and_lose_other_controls() {
        for (text, shown) in [
            ("plain\n\ttext", "plain\n\ttext"),
            ("\x1b[1mbold\x1b[0m \x1b[38;5;1mred\x1b[m", "\x1b[1mbold\x1b[0m \x1b[38;5;1mred\x1b[m"),
            ("\x1b[2Jx", "\u{fffd}[2Jx"),
            ("\x1b]52;c;QUJD\x07", "\u{fffd}]52;c;QUJD\u{fffd}"),
            ("\u{9b}2J\u{202e}gnp\x1b", "\u{fffd}2J\u{fffd}gnp\u{fffd}"),
            ("\x1b[1", "\u{fffd}[1"),
            ("s\u{200b}.sh \u{e0041}", "s\u{fffd}.sh \u{fffd}"),
        ] {
            assert_eq!(mask_controls(text), shown, "{text:?}");
        }
    }

    #[test]
    fn invisible_characters_are_shown_and_joined_emoji_keep_their_form() {
        for (text, shown) in [
            ("rm\u{200d}.sh", "rm\u{fffd}.sh"),
            ("a\u{2063}b\u{ad}c\u{feff}", "a\u{fffd}b\u{fffd}c\u{fffd}"),
            ("\u{200c}x", "\u{fffd}x"),
            ("👩\u{200d}💻 می\u{200c}خواهم", "👩\u{200d}💻 می\u{200c}خواهم"),
        ] {
            assert_eq!(printable(text), shown, "{text:?}");
        }
    }

    #[test]
    fn lines_of_a_long_list_share_writes() {
        let lines: Vec<String> = (0..10_000).map(|number| format!("thread-{number}\trye/agent\tcompleted")).collect();
        let mut batches = Vec::new();
        let printed = batch_lines::<()>(&lines, |batch| {
            batches.push(batch.to_owned());
            Ok(())
        });
        assert!(printed.is_ok() && batches.len() <= 10, "{} writes", batches.len());
        assert_eq!(batches.join("\n"), lines.join("\n"));
        let (long, mut sizes) = ("x".repeat(2 * MAX_BATCH_BYTES), Vec::new());
        let printed = batch_lines::<()>(["", &long, "", "a"], |batch| {
            sizes.push(batch.len());
            Ok(())
        });
        assert_eq!((printed, sizes), (Ok(()), vec![0, long.len(), 2]));
        assert_eq!(batch_lines::<()>([""; 0], |_| Err(())), Ok(()));
    }

    #[test]
    fn controls_in_json_are_escaped_and_keep_their_value() {
        let text = "\u{9b}2J\u{202e}ä\u{7f}\u{e0041}";
        let json = serde_json::to_string(text).unwrap_or_default();
        let escaped = escape_json_controls(&json);
        assert!(escaped.contains(r"\u009b2J\u202eä"), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).ok().as_deref(), Some(text));
    }

    #[test]
    fn explain_hint_lists_up_to_five_codes() {
        let codes = |count: usize| (0..count).map(|n| format!("rye::a::{n}")).collect::<Vec<_>>();
        assert_eq!(format_explain_hint(&[]), None);
        let one = format_explain_hint(&codes(1));
        assert_eq!(one.as_deref(), Some("for more information about an error, run `rye explain rye::a::0`"));
        let five = format_explain_hint(&codes(5)).unwrap_or_default();
        assert!(five.ends_with("rye::a::3, rye::a::4"), "{five}");
        let six = format_explain_hint(&codes(6)).unwrap_or_default();
        assert!(six.ends_with("rye::a::4, …"), "{six}");
    }
}
