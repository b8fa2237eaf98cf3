//! The placeholders of a prompt template: `$1`, `${1}`, `$@`, `$ARGUMENTS`, `${@:N}`, `${@:N:L}`, `${2:-x}`, `$$`.
//! Every other `$` is text.

use std::collections::BTreeSet;

/// Maximum length of a filled template, in bytes: a short template can repeat a long argument many times.
pub(crate) const MAX_FILLED_BYTES: usize = 16 << 20;

/// A prompt template whose placeholders are filled with the arguments of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilledTemplate {
    /// The text; `None` if it would exceed `MAX_FILLED_BYTES`.
    pub text: Option<String>,
    /// Numbers of the arguments that the call lacks, although the template names them without a default; the text
    /// contains an empty text for each of them.
    pub missing: BTreeSet<usize>,
    /// Numbers (from 1) of the arguments of the call that no placeholder of the template names.
    pub unused: BTreeSet<usize>,
}

/// A placeholder for arguments. Arguments are numbered from 1.
#[derive(Debug, PartialEq, Eq)]
enum Placeholder<'t> {
    Dollar,
    One {
        number: usize,
        default: Option<&'t str>,
    },
    /// The arguments from `first` on, joined by spaces: at most `count` of them, or all if `count` is `None`.
    Several {
        first: usize,
        count: Option<usize>,
    },
}

const ALL_ARGUMENTS: Placeholder<'static> = Placeholder::Several { first: 1, count: None };

/// Fills a template in one pass: a placeholder in an argument or a default stays text.
pub fn fill(body: &str, arguments: &[String]) -> FilledTemplate {
    let mut filler = Filler { arguments, text: String::new(), used: BTreeSet::new(), missing: BTreeSet::new() };
    let mut scanner = Scanner { unclosed: false };
    let mut rest = body;
    while let Some(at) = rest.find('$') {
        filler.text.push_str(rest.get(..at).unwrap_or_default());
        let found = rest.get(at + 1..).and_then(|after| scanner.placeholder(after));
        let length = if let Some((placeholder, length)) = found {
            filler.push(&placeholder);
            length
        } else {
            filler.text.push('$');
            0
        };
        rest = rest.get(at + 1 + length..).unwrap_or_default();
        if filler.text.len() > MAX_FILLED_BYTES {
            break;
        }
    }
    filler.text.push_str(rest);
    let Filler { text, used, missing, .. } = filler;
    let unused = (1..=arguments.len()).filter(|number| !used.contains(number)).collect();
    FilledTemplate { text: (text.len() <= MAX_FILLED_BYTES).then_some(text), missing, unused }
}

struct Filler<'a> {
    arguments: &'a [String],
    text: String,
    used: BTreeSet<usize>,
    missing: BTreeSet<usize>,
}

impl Filler<'_> {
    fn push(&mut self, placeholder: &Placeholder<'_>) {
        match placeholder {
            Placeholder::Dollar => self.text.push('$'),
            Placeholder::One { number, default } => {
                self.used.insert(*number);
                let argument = number.checked_sub(1).and_then(|at| self.arguments.get(at));
                match (argument.filter(|text| default.is_none() || !text.is_empty()), default) {
                    (Some(argument), _) => self.text.push_str(argument),
                    (None, Some(default)) => self.text.push_str(default),
                    (None, None) => {
                        self.missing.insert(*number);
                    }
                }
            }
            Placeholder::Several { first, count } => {
                let chosen = self.arguments.iter().enumerate().skip(first.saturating_sub(1));
                for (position, (at, argument)) in chosen.take(count.unwrap_or(usize::MAX)).enumerate() {
                    self.used.insert(at + 1);
                    if position > 0 {
                        self.text.push(' ');
                    }
                    self.text.push_str(argument);
                    if self.text.len() > MAX_FILLED_BYTES {
                        return;
                    }
                }
            }
        }
    }
}

/// A scanner that finds placeholders in time linear in the length of the template.
struct Scanner {
    /// True once a `${` with a default and without a closing brace was found. No later default can have a closing brace
    /// then, so the scanner does not search for a closing brace again.
    unclosed: bool,
}

impl Scanner {
    /// Returns the placeholder that starts with a `$`, and its length in bytes without the `$`. `after` is the text
    /// that follows the `$`. `None` if the text is not a placeholder.
    fn placeholder<'t>(&mut self, after: &'t str) -> Option<(Placeholder<'t>, usize)> {
        let first = after.chars().next()?;
        match first {
            '$' => Some((Placeholder::Dollar, 1)),
            '@' => Some((ALL_ARGUMENTS, 1)),
            '{' => {
                let inside = after.get(1..)?;
                let (placeholder, length) = self.braced(inside)?;
                Some((placeholder, length + 1))
            }
            '0'..='9' => {
                let (number, length) = argument_number(after)?;
                Some((Placeholder::One { number, default: None }, length))
            }
            _ => {
                let name = "ARGUMENTS";
                let behind = after.strip_prefix(name)?;
                let longer = behind.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                (!longer).then_some((ALL_ARGUMENTS, name.len()))
            }
        }
    }

    /// Returns the placeholder at the start of `inside`, and its length in bytes up to and including the closing brace.
    /// `inside` is the text that follows `${`. `None` if the text is not a valid placeholder.
    fn braced<'t>(&mut self, inside: &'t str) -> Option<(Placeholder<'t>, usize)> {
        if let Some(slice) = inside.strip_prefix("@:") {
            let (first, length) = leading_number(slice)?;
            let rest = slice.get(length..)?;
            let (count, counted) = match rest.strip_prefix(':') {
                Some(count) => leading_number(count).map(|(count, length)| (Some(count), length + 1))?,
                None => (None, 0),
            };
            let closed = rest.get(counted..)?.starts_with('}');
            return closed.then_some((Placeholder::Several { first, count }, 2 + length + counted + 1));
        }
        let (number, length) = argument_number(inside)?;
        let rest = inside.get(length..)?;
        if rest.starts_with('}') {
            return Some((Placeholder::One { number, default: None }, length + 1));
        }
        let default = rest.strip_prefix(":-").filter(|_| !self.unclosed)?;
        let Some(end) = default.find('}') else {
            self.unclosed = true;
            return None;
        };
        Some((Placeholder::One { number, default: default.get(..end) }, length + 2 + end + 1))
    }
}

/// Reads the number of an argument at the start of a text. Returns the number and its length in bytes; `None` if the
/// text does not start with a number, or if the number is 0, because arguments are numbered from 1.
fn argument_number(text: &str) -> Option<(usize, usize)> {
    leading_number(text).filter(|(number, _)| *number > 0)
}

fn leading_number(text: &str) -> Option<(usize, usize)> {
    let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..length)?.parse().ok().map(|number| (number, length))
}
