//! Words of a shell text: quotes are removed, expansions are marked. The result contains at least the commands that a
//! shell would execute. Comments and here-documents count as commands too. Each comment and here-document is split
//! separately, so that an unclosed quote in one (`# don't`) does not affect the commands after it.

use std::collections::HashMap;

use super::EXPANSION;

/// A part of a word whose text is known only when the command runs. The text of the word contains one [`EXPANSION`] for
/// each part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordExpansion {
    /// The value of a variable. Holds the name of the variable.
    Variable(String),
    /// All elements of an array: `${NAME[@]}`. Holds the name of the array.
    Elements(String),
    /// The value of a variable, or a default: `${NAME:-text}`. Holds the name and the default.
    Default(String, String),
    /// A part of a variable's value, or another change of the value: `${NAME%.*}`. Holds the name of the variable.
    Changed(String),
    /// The output of a command. Holds the text of the command.
    Output(String),
    /// A glob, or several words in braces.
    Glob,
    /// The reserved word `{`.
    Group,
    /// The command `[` or the reserved word `[[`.
    Condition,
    /// Any other expansion, such as the home folder of a user or a number.
    Other,
}

/// A simple command of a shell text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellCommand {
    pub words: Vec<String>,
    /// The expansions of each word, in their order.
    pub expansions: Vec<Vec<WordExpansion>>,
    /// The texts of command substitutions in the words of the command.
    pub nested: Vec<String>,
    /// The texts of parameter expansions and calculations in the words of the command.
    pub values: Vec<String>,
    /// The name of the array, if the words are the elements of an array: `NAME=(a b)`.
    pub array: Option<String>,
    /// True if the words only look like a command: in a comment, in a condition, in a pattern of `case`.
    pub is_inert: bool,
    /// True if the command is the start of a function's definition. Its only word is then the name of the function.
    pub is_definition: bool,
    /// True if the command is a line of a here-document.
    pub is_document: bool,
    /// The positions of the words that name the file or the descriptor of a redirection.
    redirections: Vec<usize>,
}

impl ShellCommand {
    pub fn is_redirection(&self, at: usize) -> bool {
        self.redirections.contains(&at)
    }

    pub fn words_without_redirections(&self) -> Vec<String> {
        let words = self.words.iter().enumerate().filter(|(at, _)| !self.redirections.contains(at));
        words.map(|(_, word)| word.clone()).collect()
    }
}

/// Maximum nesting of here-documents in here-documents.
const MAX_DOCUMENTS: usize = 8;
/// Maximum length of a calculation (`((n * 2))`), in characters. A longer text is read as commands.
const MAX_CALCULATION: usize = 200;
/// Reserved words that can precede a command.
pub const KEYWORDS: [&str; 11] = ["!", "coproc", "do", "elif", "else", "if", "then", "time", "until", "while", "{"];

/// Splits a shell text into its simple commands.
pub fn split_commands(text: &str) -> Vec<ShellCommand> {
    split_nested(text, 0)
}

/// Splits a text that `depth` here-documents or comments enclose. If `depth` is [`MAX_DOCUMENTS`], the here-documents
/// and comments in the text are not split.
fn split_nested(text: &str, depth: usize) -> Vec<ShellCommand> {
    let mut splitter = Splitter { text: text.chars().collect(), depth, ..Splitter::default() };
    splitter.run();
    splitter.commands
}

/// The place of the current command relative to `[[` and `]]`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ConditionPlace {
    #[default]
    Outside,
    /// The command starts with `[[`.
    Start,
    Within,
    /// The command started within the condition and ends it.
    End,
}

#[derive(Default)]
struct Splitter {
    text: Vec<char>,
    at: usize,
    word: Option<String>,
    /// The expansions of the current word.
    expansions: Vec<WordExpansion>,
    /// The name of the array whose elements the splitter is reading; `None` outside of an array.
    array: Option<String>,
    condition: ConditionPlace,
    /// The number of commands before the patterns of a `case`; `None` at a place where no pattern can follow.
    pattern_start: Option<usize>,
    /// True if the next word names the file of a redirection.
    redirects: bool,
    /// True if the next word is the delimiter of a here-document.
    starts_document: bool,
    /// The delimiters of the here-documents that start after the current line.
    documents: Vec<String>,
    /// For each line's text without leading tabs, the positions at which such a line ends. Computed at the first
    /// here-document; `None` before.
    lines: Option<HashMap<String, Vec<usize>>>,
    depth: usize,
    command: ShellCommand,
    commands: Vec<ShellCommand>,
}

impl Splitter {
    fn run(&mut self) {
        while let Some(c) = self.next() {
            match c {
                '\\' => match self.next() {
                    // A line continuation.
                    Some('\n') | None => {}
                    Some(c) => self.push(c),
                },
                '\'' => {
                    self.word.get_or_insert_default();
                    while let Some(c) = self.next().filter(|c| *c != '\'') {
                        self.push(c);
                    }
                }
                '"' => self.double_quoted(),
                '$' | '`' => self.expansion(c),
                '[' | '{' if self.is_reserved(c) => {
                    let starts_command = self.command.words.iter().all(|word| KEYWORDS.contains(&word.as_str()));
                    if starts_command && self.text.get(self.at) == Some(&'[') {
                        self.condition = ConditionPlace::Start;
                    }
                    self.push_open(if c == '{' { WordExpansion::Group } else { WordExpansion::Condition });
                }
                '*' | '?' | '[' | '{' => self.push_open(WordExpansion::Glob),
                '~' if self.word.is_none() => self.push_open(WordExpansion::Other),
                '(' if self.is_extended_glob() => {
                    self.push_open(WordExpansion::Glob);
                    let inner = self.until(')', Some('('));
                    self.command.nested.push(inner.replace('|', " "));
                }
                '#' if self.word.is_none() && self.depth < MAX_DOCUMENTS => {
                    let start = self.at;
                    while self.text.get(self.at).is_some_and(|c| *c != '\n') {
                        self.at += 1;
                    }
                    self.end_command();
                    let comment: String = self.text.get(start..self.at).unwrap_or_default().iter().collect();
                    let inert = |command| ShellCommand { is_inert: true, ..command };
                    self.commands.extend(split_nested(&comment, MAX_DOCUMENTS).into_iter().map(inert));
                }
                '\n' => {
                    self.end_list();
                    self.skip_documents();
                }
                ';' => self.end_list(),
                '|' => {
                    let start = self.pattern_start;
                    self.end_command();
                    let is_end = self.commands.last().is_some_and(|command| command.words == ["esac"]);
                    self.pattern_start = start.filter(|_| !is_end);
                }
                '&' => {
                    let is_empty = self.is_empty();
                    self.end_command();
                    self.find_end_of_case(is_empty);
                }
                '(' if self.pattern_start.is_some() && self.is_empty() => {}
                '(' if self.calculation().is_some() => {
                    let inner = self.calculation().unwrap_or_default();
                    self.at += inner.chars().count() + 1;
                    self.command.values.push(inner);
                }
                '(' => self.open_parenthesis(),
                ')' => self.close_parenthesis(),
                '<' if self.depth < MAX_DOCUMENTS && self.is_document() => {
                    self.at += 1;
                    self.at += usize::from(self.text.get(self.at) == Some(&'-'));
                    self.end_word();
                    (self.redirects, self.starts_document) = (true, true);
                }
                '<' | '>' => {
                    let is_descriptor = |word: &String| word.chars().all(|c| c.is_ascii_digit());
                    self.redirects |= self.word.as_ref().is_some_and(is_descriptor);
                    self.end_word();
                    self.redirects = true;
                }
                c if c.is_whitespace() => self.end_word(),
                c => self.push(c),
            }
        }
        self.end_command();
    }

    fn next(&mut self) -> Option<char> {
        let c = self.text.get(self.at).copied();
        self.at += 1;
        c
    }

    /// Returns true if the text continues as the start of a here-document: `<<` or `<<-`, but not `<<<`.
    fn is_document(&self) -> bool {
        let before = self.at.checked_sub(2).and_then(|at| self.text.get(at));
        self.text.get(self.at) == Some(&'<') && self.text.get(self.at + 1) != Some(&'<') && before != Some(&'<')
    }

    /// Skips the here-documents after the current line, and splits their texts. A text without the line that ends a
    /// here-document contains none.
    fn skip_documents(&mut self) {
        for delimiter in std::mem::take(&mut self.documents) {
            let lines = self.lines.get_or_insert_with(|| lines_of(&self.text));
            let ends = lines.get(&delimiter).map(Vec::as_slice).unwrap_or_default();
            let Some(end) = ends.get(ends.partition_point(|end| *end <= self.at)).copied() else { continue };
            let document: String = self.text.get(self.at..end).unwrap_or_default().iter().collect();
            self.at = end;
            let split = split_nested(&document, self.depth + 1).into_iter();
            self.commands.extend(split.map(|command| ShellCommand { is_document: true, ..command }));
        }
    }

    /// Returns true if the word so far ends with an operator of an extended glob, such as the `+` in
    /// `scripts/+(a|b).sh`.
    fn is_extended_glob(&self) -> bool {
        self.word.as_ref().is_some_and(|word| word.ends_with(['+', '@', '!', EXPANSION]))
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn push_open(&mut self, expansion: WordExpansion) {
        self.push(EXPANSION);
        self.expansions.push(expansion);
    }

    /// Returns true if the character `c` is a reserved word, or the start of `[[`.
    fn is_reserved(&self, c: char) -> bool {
        let is_end = |at: usize| self.text.get(at).is_none_or(|c| c.is_whitespace());
        self.word.is_none()
            && (is_end(self.at) || (c == '[' && self.text.get(self.at) == Some(&'[') && is_end(self.at + 1)))
    }

    /// Returns the text of a calculation such as `((n * 2))` after its first parenthesis, without the outer
    /// parentheses. `None` if the text is not a calculation.
    fn calculation(&self) -> Option<String> {
        let follows = self.word.is_none() && self.text.get(self.at) == Some(&'(');
        let mut depth = 1_usize;
        let rest = self.text.get(self.at..).filter(|_| follows)?;
        let end = rest.iter().take(MAX_CALCULATION).position(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth == 0
        })?;
        let inner = rest.get(..end).filter(|inner| inner.ends_with(&[')']))?;
        Some(inner.iter().collect())
    }

    fn open_parenthesis(&mut self) {
        let name = self.word.as_ref().and_then(|word| word.strip_suffix('=')).map(|name| name.trim_end_matches('+'));
        let name = name.filter(|name| is_variable_name(name)).map(str::to_owned);
        let is_definition = name.is_none() && self.word.is_some() && self.text.get(self.at) == Some(&')');
        self.end_command();
        if let Some(command) = self.commands.last_mut().filter(|command| is_definition && command.words.len() == 1) {
            command.is_definition = true;
        }
        self.array = name;
    }

    /// Ends a command, an array or the patterns of a `case` at a closing parenthesis.
    fn close_parenthesis(&mut self) {
        let start = self.pattern_start;
        self.end_command();
        self.array = None;
        for command in self.commands.iter_mut().skip(start.unwrap_or(usize::MAX)) {
            command.is_inert |= command.words.len() == 1;
        }
        self.pattern_start = None;
    }

    fn end_list(&mut self) {
        let is_empty = self.is_empty();
        self.end_command();
        self.condition = ConditionPlace::Outside;
        self.find_end_of_case(is_empty);
    }

    fn is_empty(&self) -> bool {
        self.word.is_none() && self.command.words.is_empty()
    }

    /// Records that the patterns of a `case` can follow, if the text before is `;;`, `;&` or `;;&`. `is_empty` is false
    /// if the last character ended a command. The text is then not the end of a branch of `case`: in `\;;`, the first
    /// semicolon belongs to the command.
    fn find_end_of_case(&mut self, is_empty: bool) {
        let is_end = is_empty && matches!(self.text.get(self.at.saturating_sub(2)..self.at), Some([';', ';' | '&']));
        if is_end {
            self.pattern_start = Some(self.commands.len());
        }
    }

    fn end_word(&mut self) {
        let Some(mut word) = self.word.take() else { return };
        let mut expansions = std::mem::take(&mut self.expansions);
        if let Some(assignment) = element_assignment(&word) {
            let values = assignment.matches(EXPANSION).count();
            expansions.drain(..expansions.len().saturating_sub(values));
            word = assignment;
        }
        if word == "]]" && self.condition != ConditionPlace::Outside {
            let starts = self.condition == ConditionPlace::Start;
            self.condition = if starts { ConditionPlace::Outside } else { ConditionPlace::End };
        }
        let redirects = std::mem::take(&mut self.redirects);
        if std::mem::take(&mut self.starts_document) {
            self.documents.push(word.clone());
        }
        // An assignment before a command: the command is the next word.
        let is_assignment = self.command.words.is_empty()
            && word.split_once('=').is_some_and(|(name, _)| is_variable_name(name.trim_end_matches('+')));
        if is_assignment {
            self.commands.push(ShellCommand {
                words: vec!["=".to_owned(), word],
                expansions: vec![Vec::new(), expansions],
                ..ShellCommand::default()
            });
        } else {
            self.command.redirections.extend(redirects.then_some(self.command.words.len()));
            self.command.words.push(word);
            self.command.expansions.push(expansions);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        (self.redirects, self.starts_document) = (false, false);
        let command = std::mem::take(&mut self.command);
        let is_inert = matches!(self.condition, ConditionPlace::Within | ConditionPlace::End);
        self.condition = match self.condition {
            ConditionPlace::Outside | ConditionPlace::End => ConditionPlace::Outside,
            ConditionPlace::Start | ConditionPlace::Within => ConditionPlace::Within,
        };
        if command != ShellCommand::default() {
            let is_case = command.words.last().is_some_and(|word| word == "in")
                && command.words.iter().find(|word| !KEYWORDS.contains(&word.as_str())).is_some_and(|it| it == "case");
            self.pattern_start = is_case.then_some(self.commands.len() + 1);
            self.commands.push(ShellCommand { array: self.array.clone(), is_inert, ..command });
        }
    }

    fn double_quoted(&mut self) {
        self.word.get_or_insert_default();
        while let Some(c) = self.next().filter(|c| *c != '"') {
            match c {
                '\\' => {
                    if let Some(c) = self.next() {
                        self.push(c);
                    }
                }
                '$' | '`' => self.expansion(c),
                c => self.push(c),
            }
        }
    }

    /// Reads an expansion that begins with `first` (`$` or a backtick): adds [`EXPANSION`] to the word, and keeps the
    /// text inside of the expansion in `nested` or `values`.
    fn expansion(&mut self, first: char) {
        if first == '`' {
            let inner = self.until('`', None);
            self.push_open(WordExpansion::Output(inner.clone()));
            self.command.nested.push(inner);
            return;
        }
        match self.text.get(self.at).copied() {
            Some('(') => {
                self.at += 1;
                let inner = self.until(')', Some('('));
                if inner.starts_with('(') && inner.ends_with(')') {
                    self.push_open(WordExpansion::Other);
                    self.command.values.push(inner);
                } else {
                    self.push_open(WordExpansion::Output(inner.clone()));
                    self.command.nested.push(inner);
                }
            }
            Some('{') => {
                self.at += 1;
                let inner = self.until('}', Some('{'));
                self.push_open(variable_of(&inner));
                // `${NAME:-a default}`
                self.forget_own_value(&inner);
                self.command.values.push(inner.replace([':', '-', '=', '+', '?'], " "));
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let start = self.at;
                while self.text.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    self.at += 1;
                }
                let name: String = self.text.get(start..self.at).unwrap_or_default().iter().collect();
                self.push_open(WordExpansion::Variable(name.clone()));
                self.forget_own_value(&name);
            }
            Some(parameter @ ('0'..='9' | '@' | '*' | '#' | '?' | '!' | '$' | '-')) => {
                self.at += 1;
                self.push_open(match parameter {
                    '1'..='9' => WordExpansion::Variable(parameter.to_string()),
                    '@' | '*' => WordExpansion::Elements("@".to_owned()),
                    _ => WordExpansion::Other,
                });
            }
            Some(_) | None => self.push_open(WordExpansion::Other),
        }
    }

    /// Removes [`EXPANSION`] from the end of the current word if the word assigns a value to the variable `name` and
    /// expands the same variable, as in `PATH=scripts:$PATH`. The command does not set the old value of the variable,
    /// so only the rest of the word counts.
    fn forget_own_value(&mut self, name: &str) {
        let is_assigned = |word: &String| word.strip_prefix(name).is_some_and(|value| value.starts_with(['=', '+']));
        if let Some(word) = self.word.as_mut().filter(|word| is_assigned(word)) {
            word.pop();
            self.expansions.pop();
        }
    }

    fn until(&mut self, close: char, open: Option<char>) -> String {
        let (mut depth, mut inner) = (0_usize, String::new());
        while let Some(c) = self.next() {
            if Some(c) == open {
                depth += 1;
            } else if c == close {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
            inner.push(c);
        }
        inner
    }
}

/// Returns true if a text is the name of a variable.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Converts an assignment to an element of an array, `NAME[index]=value`, to `NAME=value`. `None` if the word is not
/// such an assignment.
fn element_assignment(word: &str) -> Option<String> {
    let (name, rest) = word.split_once(EXPANSION).filter(|(name, _)| is_variable_name(name))?;
    let (_, value) = rest.split_once(']').filter(|(_, rest)| rest.starts_with(['=', '+']))?;
    Some(format!("{name}{value}"))
}

/// Returns the expansion for the text between the braces of `${…}`, such as `NAME:-text`.
fn variable_of(inner: &str) -> WordExpansion {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (name, rest) = inner.split_at(inner.find(|c| !is_part(c)).unwrap_or(inner.len()));
    let name = name.to_owned();
    let index = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (index, rest) = index.unwrap_or(("", rest));
    if name.is_empty() {
        // `${!NAME}`, `${#NAME}`, `${@:2}`
        let of = rest.strip_prefix('!').map(|rest| rest.trim_end_matches(['@', '*']).to_owned());
        return of.map_or(WordExpansion::Other, WordExpansion::Changed);
    }
    let default = rest.strip_prefix(':').unwrap_or(rest).strip_prefix(['-', '=', '+']);
    match default {
        Some(default) => WordExpansion::Default(name, default.to_owned()),
        None if rest.is_empty() && matches!(index, "@" | "*") => WordExpansion::Elements(name),
        None if rest.is_empty() || rest.starts_with('?') || rest.starts_with(":?") => WordExpansion::Variable(name),
        None => WordExpansion::Changed(name),
    }
}

/// Returns, for each line's text without leading tabs, the positions at which such a line ends, after its line break.
fn lines_of(text: &[char]) -> HashMap<String, Vec<usize>> {
    let mut lines: HashMap<String, Vec<usize>> = HashMap::new();
    let mut at = 0;
    for line in text.split(|c| *c == '\n') {
        at += line.len() + 1;
        let line: String = line.iter().skip_while(|c| **c == '\t').collect();
        lines.entry(line).or_default().push(at.min(text.len()));
    }
    lines
}
