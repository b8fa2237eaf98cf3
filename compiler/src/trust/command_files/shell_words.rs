//! Words of a shell text: quotes are removed, expansions are marked. The result contains at least the commands that a
//! shell would execute; comments and here documents count as commands too. Each of them is split on its own, so that a
//! quote in it (`# don't`) hides no command behind it.

use std::collections::HashMap;

use super::EXPANSION;

/// A simple command of a shell text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShellCommand {
    pub words: Vec<String>,
    /// The texts of command substitutions and parameter expansions in the words of the command.
    pub nested: Vec<String>,
    /// The positions of the words that name the file or the descriptor of a redirection.
    redirections: Vec<usize>,
}

impl ShellCommand {
    pub fn words_without_redirections(&self) -> Vec<String> {
        let words = self.words.iter().enumerate().filter(|(at, _)| !self.redirections.contains(at));
        words.map(|(_, word)| word.clone()).collect()
    }
}

/// Maximum nesting of here-documents in here-documents.
const MAX_DOCUMENTS: usize = 8;

/// Splits a shell text into its simple commands.
pub fn split_commands(text: &str) -> Vec<ShellCommand> {
    split_nested(text, 0)
}

/// Splits a text in a here-document or in a comment. In a text whose `depth` is [`MAX_DOCUMENTS`], neither is looked for.
fn split_nested(text: &str, depth: usize) -> Vec<ShellCommand> {
    let mut splitter = Splitter { text: text.chars().collect(), depth, ..Splitter::default() };
    splitter.run();
    splitter.commands
}

#[derive(Default)]
struct Splitter {
    text: Vec<char>,
    at: usize,
    word: Option<String>,
    /// True if the next word is the file of a redirection.
    redirects: bool,
    /// True if the next word is the delimiter of a here-document.
    starts_document: bool,
    /// The delimiters of the here-documents that start behind the current line.
    documents: Vec<String>,
    /// The positions behind each line, by its text without tabs at the start. Filled for the first here-document.
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
                '*' | '?' | '[' | '{' => self.push(EXPANSION),
                '~' if self.word.is_none() => self.push(EXPANSION),
                '(' if self.is_extended_glob() => {
                    self.push(EXPANSION);
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
                    self.commands.extend(split_nested(&comment, MAX_DOCUMENTS));
                }
                '\n' => {
                    self.end_command();
                    self.skip_documents();
                }
                ';' | '&' | '|' | '(' | ')' => self.end_command(),
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

    /// Skips the here-documents behind the current line, and splits their texts. A text without the line that ends a
    /// here-document contains none.
    fn skip_documents(&mut self) {
        for delimiter in std::mem::take(&mut self.documents) {
            let lines = self.lines.get_or_insert_with(|| lines_of(&self.text));
            let ends = lines.get(&delimiter).map(Vec::as_slice).unwrap_or_default();
            let Some(end) = ends.get(ends.partition_point(|end| *end <= self.at)).copied() else { continue };
            let document: String = self.text.get(self.at..end).unwrap_or_default().iter().collect();
            self.at = end;
            self.commands.extend(split_nested(&document, self.depth + 1));
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

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        let redirects = std::mem::take(&mut self.redirects);
        if std::mem::take(&mut self.starts_document) {
            self.documents.push(word.clone());
        }
        // An assignment before a command: the command is the next word.
        let is_assignment = self.command.words.is_empty()
            && word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '+')
            });
        if is_assignment {
            self.commands.push(ShellCommand { words: vec!["=".to_owned(), word], ..ShellCommand::default() });
        } else {
            self.command.redirections.extend(redirects.then_some(self.command.words.len()));
            self.command.words.push(word);
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        (self.redirects, self.starts_document) = (false, false);
        let command = std::mem::take(&mut self.command);
        if command != ShellCommand::default() {
            self.commands.push(command);
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
    /// text inside of the expansion in `nested`.
    fn expansion(&mut self, first: char) {
        self.push(EXPANSION);
        if first == '`' {
            let inner = self.until('`', None);
            self.command.nested.push(inner);
            return;
        }
        match self.text.get(self.at).copied() {
            Some(open @ ('(' | '{')) => {
                self.at += 1;
                let inner = self.until(if open == '(' { ')' } else { '}' }, Some(open));
                // `${NAME:-a default}`
                if open == '{' {
                    self.forget_own_value(&inner);
                }
                let inner = if open == '{' { inner.replace([':', '-', '=', '+', '?'], " ") } else { inner };
                self.command.nested.push(inner);
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let start = self.at;
                while self.text.get(self.at).is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    self.at += 1;
                }
                let name: String = self.text.get(start..self.at).unwrap_or_default().iter().collect();
                self.forget_own_value(&name);
            }
            Some('0'..='9' | '@' | '*' | '#' | '?' | '!' | '$' | '-') => self.at += 1,
            Some(_) | None => {}
        }
    }

    /// Removes [`EXPANSION`] from the end of the current word if the word assigns a value to the variable `name` and
    /// expands the same variable, as in `PATH=scripts:$PATH`. The command does not choose the old value of the
    /// variable, so only the rest of the word counts.
    fn forget_own_value(&mut self, name: &str) {
        let is_assigned = |word: &String| word.strip_prefix(name).is_some_and(|value| value.starts_with(['=', '+']));
        if let Some(word) = self.word.as_mut().filter(|word| is_assigned(word)) {
            word.pop();
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

/// Returns the positions behind each line of a text, by the line without tabs at the start.
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
