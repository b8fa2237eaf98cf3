//! Reads a Python tool: the constants and names of the module's top level, and the signature of the function that a
//! call runs.

use std::collections::BTreeSet;

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Expr, Mod, Number, Stmt, StmtFunctionDef, UnaryOp};
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};
use ruff_text_size::{Ranged, TextRange};
use rye_grammar::data::{Kind, Node};
use rye_grammar::tool_header::{Constant, EntrySignature, Script};
use rye_grammar::{Parsed, SourceId, Span, Spanned};

use super::{LiteralReader, parse_number, push_entry, python_values, syntax_error};

/// Maximum number of reported syntax errors per file. Later errors are mostly consequences of the first error.
const MAX_ERRORS: usize = 1;

/// Maximum estimated depth of nesting. The time of the parser grows with the square of the depth of nested f-strings,
/// and real scripts nest less deeply.
const MAX_ESTIMATED_DEPTH: usize = 1_000;

/// Returns true if brackets or signs (`-`, `+`, `~` before an operand) could nest deeper than `MAX_ESTIMATED_DEPTH`.
/// Counts the characters even in strings and comments, because recognizing strings would require a parser.
pub(super) fn is_too_deep(text: &str) -> bool {
    let (mut brackets, mut signs) = (0_usize, 0_usize);
    text.bytes().any(|byte| {
        match byte {
            b'(' | b'[' | b'{' => brackets += 1,
            b')' | b']' | b'}' => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        match byte {
            b'-' | b'+' | b'~' => signs += 1,
            b' ' => {}
            _ => signs = 0,
        }
        brackets > MAX_ESTIMATED_DEPTH || signs > MAX_ESTIMATED_DEPTH
    })
}

pub(super) fn read(source: SourceId, text: &str) -> Parsed<Script> {
    let parsed = parse_unchecked(text, ParseOptions::from(Mode::Module));
    let at = |range: TextRange| Span { source, start: range.start().into(), end: range.end().into() };
    let errors: Vec<_> = parsed
        .errors()
        .iter()
        .take(MAX_ERRORS)
        .map(|e| syntax_error(source, &e.error.to_string(), at(e.location), "Python"))
        .collect();
    let mut script = Script::default();
    if let Mod::Module(module) = parsed.syntax() {
        let mut reader = PythonReader {
            literals: LiteralReader::new(source),
            script: &mut script,
            names: BTreeSet::new(),
            module: &module.body,
            text,
        };
        for statement in &module.body {
            reader.statement(statement, true);
        }
        let names = std::mem::take(&mut reader.names);
        script.names = names.into_iter().collect();
    }
    Parsed { tree: script, errors }
}

struct PythonReader<'s> {
    literals: LiteralReader,
    script: &'s mut Script,
    names: BTreeSet<String>,
    module: &'s [Stmt],
    text: &'s str,
}

impl PythonReader<'_> {
    /// Reads a statement. `certain` is true if the statement always runs. A name assigned in an `if` or a `try` is not
    /// constant.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other statement binds a name")]
    fn statement(&mut self, statement: &Stmt, certain: bool) {
        match statement {
            Stmt::Assign(assign) => {
                for target in &assign.targets {
                    self.bind_target(target, &assign.value, certain);
                }
            }
            Stmt::AnnAssign(assign) => {
                if let Some(value) = &assign.value {
                    self.bind_target(&assign.target, value, certain);
                }
            }
            Stmt::AugAssign(assign) => self.bind_target(&assign.target, &assign.value, false),
            Stmt::FunctionDef(function) => {
                self.function(function.name.as_str());
                self.entry(function, certain);
            }
            Stmt::ClassDef(class) => self.function(class.name.as_str()),
            Stmt::Import(import) => import.names.iter().for_each(|a| self.alias(a)),
            Stmt::ImportFrom(import) => import.names.iter().for_each(|a| self.alias(a)),
            Stmt::If(branch) => {
                let else_bodies = branch.elif_else_clauses.iter().flat_map(|c| c.body.iter());
                branch.body.iter().chain(else_bodies).for_each(|s| self.read_nested(s));
            }
            Stmt::Try(block) => {
                let bodies = block.body.iter().chain(&block.orelse).chain(&block.finalbody);
                bodies.for_each(|s| self.read_nested(s));
            }
            Stmt::With(block) => block.body.iter().for_each(|s| self.read_nested(s)),
            _ => {}
        }
    }

    /// Reads a statement inside a block. Skips a statement that is a block itself: one level is enough for `try: import
    /// …` and for a constant in an `if`.
    fn read_nested(&mut self, statement: &Stmt) {
        if !matches!(statement, Stmt::If(_) | Stmt::Try(_) | Stmt::With(_)) {
            self.statement(statement, false);
        }
    }

    /// Reads the signature of the function that a call runs: `execute`, else `main`. The signature stays unknown if the
    /// definition does not always run (`certain` is false), or if the function has a decorator.
    fn entry(&mut self, function: &StmtFunctionDef, certain: bool) {
        let name = function.name.as_str();
        let is_entry = name == "execute" || (name == "main" && !self.names.contains("execute"));
        if is_entry {
            // A decorator may change the parameters.
            let is_plain = certain && function.decorator_list.is_empty();
            self.script.entry = is_plain.then(|| self.signature(function));
        }
    }

    fn signature(&self, function: &StmtFunctionDef) -> EntrySignature {
        let parameters = &function.parameters;
        let positional = || parameters.posonlyargs.iter().chain(&parameters.args);
        let range = parameters.range();
        let names: Vec<String> = positional().map(|parameter| parameter.parameter.name.to_string()).collect();
        let mut reads = KeyReads { object: names.first().map_or("", String::as_str), ..KeyReads::default() };
        reads.visit_body(&function.body);
        let span = |range: TextRange| self.literals.span(range.start().into(), range.end().into());
        let written = |range: TextRange| {
            let text = self.text.get(usize::from(range.start())..usize::from(range.end())).unwrap_or_default();
            Spanned::new(text.lines().next().unwrap_or_default().to_owned(), span(range))
        };
        let keyed = |keys: Vec<(&str, TextRange)>| -> Vec<Spanned<String>> {
            keys.into_iter().map(|(key, range)| Spanned::new(key.to_owned(), span(range))).collect()
        };
        let (reads_are_complete, optional) = (reads.are_complete(), std::mem::take(&mut reads.optional));
        let other_source = python_values::other_source(self.module, function);
        EntrySignature {
            function: function.name.to_string(),
            span: self.literals.span(range.start().into(), range.end().into()),
            reads: keyed(reads.certain()),
            optional_reads: keyed(optional),
            reads_are_complete,
            other_source: other_source.map(|(source, range)| (source, written(range))),
            lost_result: python_values::lost_result(function).map(written),
            names,
            required: positional().filter(|parameter| parameter.default.is_none()).count(),
            is_variadic: parameters.vararg.is_some(),
            requires_names: parameters.kwonlyargs.iter().any(|parameter| parameter.default.is_none()),
        }
    }

    fn function(&mut self, name: &str) {
        self.names.insert(name.to_owned());
    }

    fn alias(&mut self, alias: &ruff_python_ast::Alias) {
        self.names.insert(alias.asname.as_ref().unwrap_or(&alias.name).to_string());
    }

    fn bind_target(&mut self, target: &Expr, value: &Expr, certain: bool) {
        let Expr::Name(name) = target else { return };
        self.names.insert(name.id.to_string());
        let range = name.range();
        let span = self.literals.span(range.start().into(), range.end().into());
        let value = if certain { self.literals.python(value, 0) } else { Err(span) };
        self.script.constants.push(Constant { name: Spanned::new(name.id.to_string(), span), value });
    }
}

/// The keys that a function reads from an object, such as `params["name"]`.
#[derive(Default)]
struct KeyReads<'a> {
    object: &'a str,
    reads: Vec<(&'a str, TextRange)>,
    /// Keys that the function tests, writes or deletes in addition to reading them. A read of one of these keys does
    /// not prove that the caller must set the key.
    handled: BTreeSet<&'a str>,
    /// True if the function assigns another value to the variable `object`, so that later reads may be from that value.
    is_reassigned: bool,
    /// Keys that the function reads by `params.get("name")`.
    optional: Vec<(&'a str, TextRange)>,
    /// Number of uses of the object that read or test one literal key.
    keyed_uses: usize,
    /// Number of all uses of the object. An inner function counts as a use, because its body is not read.
    uses: usize,
    /// Number of `try` statements around the current expression. Inside of a `try`, a missing key may be expected.
    open_tries: usize,
}

impl<'a> KeyReads<'a> {
    /// Returns the keys that the caller must set, each with the place where the function reads it. Leaves out keys that
    /// the function itself tests or sets. Empty if the function assigns another value to the variable with the keys
    /// (named in `object`), because a read may then be from the other value.
    fn certain(self) -> Vec<(&'a str, TextRange)> {
        let Self { reads, handled, is_reassigned, .. } = self;
        reads.into_iter().filter(|(key, _)| !is_reassigned && !handled.contains(key)).collect()
    }

    /// Returns true if the function uses the object only to read or test literal keys.
    fn are_complete(&self) -> bool {
        !self.is_reassigned && self.keyed_uses == self.uses
    }

    fn is_object(&self, expression: &Expr) -> bool {
        matches!(expression, Expr::Name(name) if name.id.as_str() == self.object)
    }
}

impl<'a> Visitor<'a> for KeyReads<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        // An inner function may have a parameter with the name of the object, so its body is not read.
        if matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_)) {
            self.uses += 1;
            return;
        }
        let tries = usize::from(matches!(statement, Stmt::Try(_)));
        self.open_tries += tries;
        visitor::walk_stmt(self, statement);
        self.open_tries -= tries;
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Subscript(subscript) = expression
            && self.is_object(&subscript.value)
            && let Expr::StringLiteral(key) = &*subscript.slice
        {
            self.keyed_uses += 1;
            if subscript.ctx.is_load() && self.open_tries == 0 {
                self.reads.push((key.value.to_str(), key.range()));
            } else if !subscript.ctx.is_load() {
                self.handled.insert(key.value.to_str());
            }
        } else if let Expr::Name(name) = expression {
            // `locals()` and `eval` can read any variable.
            self.uses +=
                usize::from(name.id.as_str() == self.object || matches!(name.id.as_str(), "locals" | "eval" | "exec"));
            self.is_reassigned |= name.id.as_str() == self.object && !name.ctx.is_load();
        } else if let Expr::Compare(compare) = expression
            && let Expr::StringLiteral(key) = &*compare.left
        {
            self.handled.insert(key.value.to_str());
            self.keyed_uses += compare.comparators.iter().filter(|one| self.is_object(one)).count();
        } else if let Expr::Call(call) = expression {
            let getter = call.func.as_attribute_expr();
            if let (Some(Expr::StringLiteral(key)), Some(getter)) = (call.arguments.args.first(), getter)
                && getter.attr.as_str() == "get"
                && self.is_object(&getter.value)
            {
                self.keyed_uses += 1;
                self.optional.push((key.value.to_str(), key.range()));
            }
            // `params.setdefault("name", …)`, `params.update(…)` and `fill(params)` may add keys.
            let method = call.func.as_attribute_expr().filter(|attribute| self.is_object(&attribute.value));
            let is_read = method.is_none_or(|attribute| {
                matches!(attribute.attr.as_str(), "get" | "keys" | "values" | "items" | "copy")
            });
            self.is_reassigned |= !is_read || call.arguments.args.iter().any(|argument| self.is_object(argument));
        }
        visitor::walk_expr(self, expression);
    }
}

impl LiteralReader {
    fn place(&self, expression: &Expr) -> Span {
        let range = expression.range();
        self.span(range.start().into(), range.end().into())
    }

    /// Returns the value of a literal; otherwise the span of the first expression that is not a literal.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression is a literal")]
    fn python(&mut self, expression: &Expr, depth: usize) -> Result<Node, Span> {
        let span = self.place(expression);
        self.count(depth, span)?;
        let kind = match expression {
            Expr::StringLiteral(s) => {
                let text = s.value.to_str();
                // If the literal has no escapes, prefix or triple quotes, use the span between the quotes.
                let inner = Span { start: span.start + 1, end: span.end.saturating_sub(1), ..span };
                let verbatim = inner.len() == text.len();
                return Ok(Node::new(Kind::String(text.to_owned()), if verbatim { inner } else { span }));
            }
            Expr::BooleanLiteral(b) => Kind::Bool(b.value),
            Expr::NoneLiteral(_) => Kind::Null,
            Expr::NumberLiteral(n) => python_number(&n.value, false).ok_or(span)?,
            Expr::UnaryOp(u) => match (&u.op, &*u.operand) {
                (UnaryOp::USub, Expr::NumberLiteral(n)) => python_number(&n.value, true).ok_or(span)?,
                (UnaryOp::UAdd, Expr::NumberLiteral(n)) => python_number(&n.value, false).ok_or(span)?,
                (UnaryOp::USub | UnaryOp::UAdd | UnaryOp::Not | UnaryOp::Invert, _) => return Err(span),
            },
            Expr::List(list) => Kind::List(self.all(&list.elts, depth)?),
            Expr::Tuple(tuple) => Kind::List(self.all(&tuple.elts, depth)?),
            Expr::Dict(dict) => {
                let mut entries = Vec::with_capacity(dict.items.len().min(64));
                for item in &dict.items {
                    let Some(key) = &item.key else { return Err(self.place(&item.value)) };
                    let key_span = self.place(key);
                    let Expr::StringLiteral(name) = key else { return Err(key_span) };
                    let value = self.python(&item.value, depth + 1)?;
                    push_entry(name.value.to_str().to_owned(), key_span, value, &mut entries)?;
                }
                Kind::Map(entries)
            }
            _ => return Err(span),
        };
        Ok(Node::new(kind, span))
    }

    fn all(&mut self, items: &[Expr], depth: usize) -> Result<Vec<Node>, Span> {
        items.iter().map(|item| self.python(item, depth + 1)).collect()
    }
}

fn python_number(value: &Number, negative: bool) -> Option<Kind> {
    match value {
        // A number beyond 64 bits would lose digits, so it has no value.
        Number::Int(n) => {
            let kind = parse_number(&n.to_string(), negative)?;
            matches!(&kind, Kind::Number(n) if n.is_i64() || n.is_u64()).then_some(kind)
        }
        Number::Float(f) => serde_json::Number::from_f64(if negative { -f } else { *f }).map(Kind::Number),
        Number::Complex { .. } => None,
    }
}
