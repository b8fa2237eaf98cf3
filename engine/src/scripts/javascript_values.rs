//! Finds mistakes in a JavaScript tool: code that the runtime refuses, values that the tool reads from another source
//! than its arguments, and results that it prints instead of returning them. The search uses tokens, so strings and
//! comments do not count as code.

use oxc_ast::ast::{Declaration, Statement};
use oxc_parser::{Kind, Token};
use oxc_span::Span;

use super::javascript::JavaScriptDialect;

/// The tokens of a script.
#[derive(Clone, Copy)]
pub(super) struct ScriptTokens<'t> {
    pub tokens: &'t [Token],
    pub text: &'t str,
}

impl<'t> ScriptTokens<'t> {
    fn word(&self, token: &Token) -> &'t str {
        self.text.get(token.start() as usize..token.end() as usize).unwrap_or_default()
    }

    /// Returns the tokens within a span.
    fn within(self, span: Span) -> Self {
        let start = self.tokens.partition_point(|token| token.start() < span.start);
        let end = self.tokens.partition_point(|token| token.end() <= span.end);
        Self { tokens: self.tokens.get(start..end.max(start)).unwrap_or_default(), ..self }
    }

    /// Returns the indexes of the tokens outside of all braces.
    fn top_level(&self) -> impl Iterator<Item = usize> {
        let mut depth = 0_usize;
        self.tokens.iter().enumerate().filter_map(move |(at, token)| {
            if matches!(token.kind(), Kind::LCurly | Kind::TemplateHead) {
                depth += 1;
            } else if matches!(token.kind(), Kind::RCurly | Kind::TemplateTail) {
                depth = depth.saturating_sub(1);
            }
            (depth == 0).then_some(at)
        })
    }

    /// Returns true if the tokens from `at` are these words, and no member access precedes them.
    fn are(&self, at: usize, words: &[&str]) -> bool {
        let is_member = at
            .checked_sub(1)
            .and_then(|before| self.tokens.get(before))
            .is_some_and(|token| matches!(token.kind(), Kind::Dot | Kind::QuestionDot));
        !is_member
            && words
                .iter()
                .enumerate()
                .all(|(index, word)| self.tokens.get(at + index).is_some_and(|token| self.word(token) == *word))
    }

    fn has(&self, words: &[&str]) -> bool {
        (0..self.tokens.len()).any(|at| self.are(at, words))
    }

    fn span(&self, first: usize, last: usize) -> Option<Span> {
        Some(Span::new(self.tokens.get(first)?.start(), self.tokens.get(last)?.end()))
    }

    /// Returns the first place in the function's `block`, or outside of all functions, that reads an argument of the
    /// process (`process.argv[2]`). `None` if the script also tests how it was started or how many arguments there are,
    /// because such a script may also work without arguments.
    pub(super) fn command_line(self, block: Option<Span>) -> Option<Span> {
        let is_guarded = self.has(&["import", ".", "meta", ".", "url"])
            || self.has(&["import", ".", "meta", ".", "main"])
            || self.has(&["process", ".", "argv", "[", "1", "]"])
            || self.has(&["process", ".", "argv", ".", "length"]);
        if is_guarded {
            return None;
        }
        let read = |tokens: &Self, at: usize| {
            let is_read = tokens.are(at, &["process", ".", "argv"])
                && (tokens.tokens.get(at + 3).is_some_and(|next| next.kind() == Kind::LBrack)
                    || tokens.tokens.get(at + 4).is_some_and(|next| tokens.word(next) == "slice"));
            let is_default = tokens
                .tokens
                .iter()
                .skip(at + 3)
                .take(4)
                .any(|next| matches!(next.kind(), Kind::Question2 | Kind::Pipe2 | Kind::Question));
            if is_read && !is_default { tokens.span(at, at + 2) } else { None }
        };
        let body = block.map(|block| self.within(block));
        let in_body = body.and_then(|body| (0..body.tokens.len()).find_map(|at| read(&body, at)));
        in_body.or_else(|| self.top_level().find_map(|at| read(&self, at)))
    }

    /// Returns true if a `return` with a value follows anywhere in the block, also in an inner function.
    pub(super) fn returns_value(self, block: Span) -> bool {
        let tokens = self.within(block);
        tokens.tokens.windows(2).any(|pair| match pair {
            [first, next] => {
                first.kind() == Kind::Return
                    && !next.is_on_new_line()
                    && !matches!(next.kind(), Kind::Semicolon | Kind::RCurly)
            }
            _ => false,
        })
    }

    /// Returns the last place in a block that prints to the standard output.
    pub(super) fn printed(self, block: Span) -> Option<Span> {
        let tokens = self.within(block);
        (0..tokens.tokens.len()).rev().find_map(|at| {
            let printer: [&[&str]; 3] = [
                &["console", ".", "log", "("],
                &["console", ".", "info", "("],
                &["process", ".", "stdout", ".", "write", "("],
            ];
            let words = printer.into_iter().find(|words| tokens.are(at, words))?;
            tokens.span(at, at + words.len() - 2)
        })
    }

    /// Returns the keys that a block reads from an object by `object.key` and `object["key"]`. `None` if the block uses
    /// the object in any other way.
    pub(super) fn member_reads(self, block: Span, object: &str) -> Option<Vec<(String, Span)>> {
        let tokens = self.within(block);
        let mut keys = Vec::new();
        for (at, token) in tokens.tokens.iter().enumerate() {
            let word = tokens.word(token);
            // `arguments` and `eval` can read the object under another name.
            if matches!(word, "arguments" | "eval") {
                return None;
            }
            let is_inside_text = matches!(
                token.kind(),
                Kind::TemplateHead
                    | Kind::TemplateMiddle
                    | Kind::TemplateTail
                    | Kind::Str
                    | Kind::NoSubstitutionTemplate
            );
            if word != object || is_inside_text || (at > 0 && !tokens.are(at, &[object])) {
                continue;
            }
            let follows = |offset: usize| tokens.tokens.get(at + offset);
            let (access, key) = (follows(1)?, follows(2)?);
            let is_assigned = |offset: usize| follows(offset).is_some_and(|next| next.kind() == Kind::Eq);
            let is_dot = matches!(access.kind(), Kind::Dot | Kind::QuestionDot);
            let name = if is_dot && key.kind() != Kind::LBrack && !is_assigned(3) {
                tokens.word(key)
            } else if access.kind() == Kind::LBrack
                && key.kind() == Kind::Str
                && follows(3)?.kind() == Kind::RBrack
                && !is_assigned(4)
            {
                tokens.word(key).trim_matches(['"', '\''])
            } else {
                return None;
            };
            keys.push((name.to_owned(), key.span()));
        }
        Some(keys)
    }
}

/// Code that makes every call of the tool fail, because the runtime refuses the code when it loads the script.
pub(super) struct UnrunnableCode {
    pub span: Span,
    pub message: String,
    pub label: &'static str,
    pub help: &'static str,
}

/// Returns the first code of a script that the runtime refuses. Searches the top level of the script. Names of
/// `CommonJS` are also searched in the function that a call runs; `block` is the span of the body of that function.
pub(super) fn unrunnable(
    tokens: ScriptTokens<'_>,
    statements: &[Statement<'_>],
    block: Option<Span>,
    dialect: JavaScriptDialect,
) -> Option<UnrunnableCode> {
    let body = block.map(|block| tokens.within(Span::new(block.start + 1, block.end.saturating_sub(1))));
    common_name(tokens, tokens)
        .or_else(|| common_name(tokens, body?))
        .or_else(|| statements.iter().filter(|_| dialect == JavaScriptDialect::Typed).find_map(emitted_type))
}

/// Returns the first use of `require`, `__dirname` or `__filename` in `code`, outside of all braces. `None` if the
/// `script` declares or tests the name, as with `createRequire`.
fn common_name(script: ScriptTokens<'_>, code: ScriptTokens<'_>) -> Option<UnrunnableCode> {
    let is_own = |name: &str| {
        ["const", "let", "var", "function", "typeof", "import", "as", ",", "{"]
            .iter()
            .any(|word| script.has(&[word, name]))
            || script.tokens.iter().any(|token| script.word(token) == "globalThis")
    };
    let mut in_arrow = false;
    let (name, at) = code.top_level().find_map(|at| {
        // The body of an arrow function may never run.
        let kind = code.tokens.get(at)?.kind();
        in_arrow = kind == Kind::Arrow || (in_arrow && kind != Kind::Semicolon);
        let name = ["require", "__dirname", "__filename"].into_iter().find(|name| code.are(at, &[name]))?;
        let next = code.tokens.get(at + 1).map(Token::kind);
        let is_use = if name == "require" { next == Some(Kind::LParen) } else { next != Some(Kind::Colon) };
        (is_use && !in_arrow && !is_own(name)).then_some((name, at))
    })?;
    let help = match name {
        "require" => "write `import fs from \"node:fs\";`",
        "__dirname" => {
            "write `import.meta.dirname`, or use the folder of the project: the second argument of `execute`"
        }
        _ => "write `import.meta.filename`",
    };
    Some(UnrunnableCode {
        span: code.span(at, at)?,
        message: format!("a tool must be an ES module, which has no `{name}`"),
        label: "not defined",
        help,
    })
}

/// Returns an error for a TypeScript declaration that compiles to code, such as an enum. The runtime only removes
/// types, so it refuses such a declaration. `None` for all other statements.
#[expect(clippy::wildcard_enum_match_arm, reason = "all other declarations can be removed or are JavaScript")]
fn emitted_type(statement: &Statement<'_>) -> Option<UnrunnableCode> {
    let of = |declaration: &Declaration<'_>| match declaration {
        Declaration::TSEnumDeclaration(found) if !found.declare => Some((found.span, "enum")),
        _ => None,
    };
    let (span, what) = match statement {
        Statement::TSEnumDeclaration(found) if !found.declare => (found.span, "enum"),
        Statement::ExportDeclaration(export) => of(&export.declaration)?,
        Statement::TSImportEqualsDeclaration(found) => (found.span, "import ="),
        Statement::TSExportAssignment(found) => (found.span, "export ="),
        _ => return None,
    };
    let help = match what {
        "enum" => "write an object: `const Mode = { A: 0, B: 1 } as const;`",
        "import =" => "write `import fs from \"node:fs\";`",
        _ => "write `export function execute(params, projectPath) { … }`",
    };
    let first = Span::new(span.start, span.start.saturating_add(u32::try_from(what.len()).unwrap_or(0)).min(span.end));
    Some(UnrunnableCode {
        span: first,
        message: format!("`{what}` must be compiled, but the types of a tool are only removed"),
        label: "cannot be removed",
        help,
    })
}
