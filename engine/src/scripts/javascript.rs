//! JavaScript and TypeScript: exported constants and names of a module.

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    ArrayExpressionElement, BindingPattern, Declaration, ExportDefaultDeclarationKind, Expression, ModuleExportName,
    ObjectPropertyKind, PropertyKey, PropertyKind, Statement, UnaryOperator, VariableDeclarationKind,
};
use oxc_parser::Parser;
use oxc_span::{GetSpan, SourceType};
use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::tool_header::{Constant, Script};
use rye_grammar::{Parsed, SourceId, Span, Spanned};

use super::{LiteralReader, parse_number, push_entry, syntax_error};

/// Maximum number of errors per file, because later errors are mostly consequences of the first.
const MAX_ERRORS: usize = 1;

/// Maximum estimated depth of nesting. The parser recurses without a limit: its stack suffices for this depth, and real
/// scripts nest less deeply.
const MAX_ESTIMATED_DEPTH: usize = 15_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JavaScriptDialect {
    Plain,
    Typed,
}

pub(super) fn read(source: SourceId, text: &str, dialect: JavaScriptDialect) -> Parsed<Script> {
    let (kind, language) = match dialect {
        JavaScriptDialect::Plain => (SourceType::mjs(), "JavaScript"),
        JavaScriptDialect::Typed => (SourceType::ts(), "TypeScript"),
    };
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, text, kind).parse();
    let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut errors = Vec::new();
    for error in parsed.diagnostics.iter().take(MAX_ERRORS) {
        let label = error.labels.first();
        let start = label.map_or(0, oxc_span::LabeledSpan::offset).min(end);
        let length = label.map_or(0, oxc_span::LabeledSpan::len);
        let span = Span { source, start, end: start.saturating_add(length).min(end) };
        errors.push(syntax_error(source, &error.message, span, language));
    }
    let mut reader = JavaScriptReader { literals: LiteralReader::new(source), script: Script::default() };
    for statement in &parsed.program.body {
        reader.statement(statement);
    }
    Parsed { tree: reader.script, errors }
}

/// Returns true if a text could nest deeper than the parser's stack allows. Counts everything that can open a level
/// (brackets, operators, words that take an operand or a statement), even in strings and comments, because
/// overestimating is safe and recognizing strings would require a parser.
pub(super) fn is_too_deep(text: &str) -> bool {
    let (mut brackets, mut run, mut statements) = (0_usize, 0_usize, 0_usize);
    let mut open = false;
    let mut bytes = text.bytes().peekable();
    let mut word = String::new();
    while let Some(byte) = bytes.next() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80 {
            if word.len() < 12 {
                word.push(char::from(byte));
            }
            if bytes.peek().is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$')) {
                continue;
            }
            open = match word.as_str() {
                "if" | "else" | "for" | "while" | "do" | "with" => {
                    statements += 1;
                    true
                }
                "new" | "typeof" | "void" | "delete" | "await" | "yield" | "async" | "extends" | "in" | "of" => {
                    run += 1;
                    true
                }
                _ => false,
            };
            word.clear();
        } else {
            match byte {
                b'(' | b'[' | b'{' => brackets += 1,
                b')' | b']' | b'}' => {
                    brackets = brackets.saturating_sub(1);
                    open = false;
                }
                b';' | b',' => run = 0,
                // A line end finishes a statement, unless the next line continues it.
                b'\n' if !open => {
                    let continues =
                        bytes.peek().is_some_and(|b| b.is_ascii_punctuation() && !b"\"'`_$/(){}[]".contains(b));
                    if !continues {
                        run = 0;
                    }
                }
                b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'`' | b'.' | b'#' | b'@' | b'\\' => {}
                _ => {
                    run += 1;
                    open = true;
                }
            }
        }
        if brackets > MAX_ESTIMATED_DEPTH || run > MAX_ESTIMATED_DEPTH || statements > MAX_ESTIMATED_DEPTH {
            return true;
        }
    }
    false
}

struct JavaScriptReader {
    literals: LiteralReader,
    script: Script,
}

impl JavaScriptReader {
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other statement exports a name")]
    fn statement(&mut self, statement: &Statement<'_>) {
        match statement {
            Statement::ExportDeclaration(export) => self.declaration(&export.declaration),
            Statement::ExportNamedDeclaration(export) => {
                export.specifiers.iter().for_each(|s| self.add_exported_name(&s.exported));
            }
            Statement::ExportFromDeclaration(export) => {
                export.specifiers.iter().for_each(|s| self.add_exported_name(&s.exported));
            }
            Statement::ExportDefaultDeclaration(export) => {
                let is_function = matches!(
                    export.declaration,
                    ExportDefaultDeclarationKind::FunctionDeclaration(_)
                        | ExportDefaultDeclarationKind::ArrowFunctionExpression(_)
                        | ExportDefaultDeclarationKind::FunctionExpression(_)
                        | ExportDefaultDeclarationKind::Identifier(_)
                );
                if is_function {
                    self.name("default");
                }
            }
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other declarations are types")]
    fn declaration(&mut self, declaration: &Declaration<'_>) {
        match declaration {
            Declaration::VariableDeclaration(variables) => {
                let constant = variables.kind == VariableDeclarationKind::Const;
                for variable in &variables.declarations {
                    let BindingPattern::BindingIdentifier(id) = &variable.id else { continue };
                    let span = self.literals.at(id.span);
                    let value = match &variable.init {
                        Some(value) if constant => self.literals.javascript(value, 0),
                        Some(_) | None => Err(span),
                    };
                    self.name(&id.name);
                    self.script.constants.push(Constant { name: Spanned::new(id.name.to_string(), span), value });
                }
            }
            Declaration::FunctionDeclaration(function) => {
                if let Some(id) = &function.id {
                    self.name(&id.name);
                }
            }
            _ => {}
        }
    }

    /// Adds a name of an export list. The list does not contain the value of the name.
    fn add_exported_name(&mut self, name: &ModuleExportName<'_>) {
        let (text, span) = match name {
            ModuleExportName::IdentifierName(id) => (id.name.to_string(), id.span),
            ModuleExportName::IdentifierReference(id) => (id.name.to_string(), id.span),
            ModuleExportName::StringLiteral(s) => (s.value.to_string(), s.span),
        };
        self.name(&text);
        let span = self.literals.at(span);
        self.script.constants.push(Constant { name: Spanned::new(text, span), value: Err(span) });
    }

    fn name(&mut self, name: &str) {
        if !self.script.names.iter().any(|n| n == name) {
            self.script.names.push(name.to_owned());
        }
    }
}

impl LiteralReader {
    fn at(&self, span: oxc_span::Span) -> Span {
        self.span(span.start, span.end)
    }

    /// Returns the value of a literal; otherwise the span of the first expression that is not a literal.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression is a literal")]
    fn javascript(&mut self, expression: &Expression<'_>, depth: usize) -> Result<Node, Span> {
        let span = self.at(expression.span());
        self.count(depth, span)?;
        let kind = match expression {
            Expression::StringLiteral(s) if !s.lone_surrogates => return Ok(string(&s.value, span)),
            Expression::TemplateLiteral(t) if t.expressions.is_empty() => {
                let cooked = t.quasis.first().and_then(|q| q.value.cooked.as_ref());
                return cooked.map(|text| string(text, span)).ok_or(span);
            }
            Expression::BooleanLiteral(b) => Kind::Bool(b.value),
            Expression::NullLiteral(_) => Kind::Null,
            Expression::NumericLiteral(n) => {
                javascript_number(n.value, n.raw.as_ref().map(oxc_ast::ast::Str::as_str), false).ok_or(span)?
            }
            Expression::UnaryExpression(u) => match (&u.operator, &u.argument) {
                (UnaryOperator::UnaryNegation, Expression::NumericLiteral(n)) => {
                    javascript_number(n.value, n.raw.as_ref().map(oxc_ast::ast::Str::as_str), true).ok_or(span)?
                }
                _ => return Err(span),
            },
            Expression::ArrayExpression(list) => {
                let mut items = Vec::with_capacity(list.elements.len().min(64));
                for element in &list.elements {
                    let place = self.at(element.span());
                    let value = match element {
                        ArrayExpressionElement::SpreadElement(_) | ArrayExpressionElement::Elision(_) => None,
                        other => other.as_expression(),
                    };
                    items.push(self.javascript(value.ok_or(place)?, depth + 1)?);
                }
                Kind::List(items)
            }
            Expression::ObjectExpression(object) => {
                let mut entries: Vec<Entry> = Vec::with_capacity(object.properties.len().min(64));
                for property in &object.properties {
                    let place = self.at(property.span());
                    let ObjectPropertyKind::ObjectProperty(property) = property else { return Err(place) };
                    if property.kind != PropertyKind::Init || property.method || property.computed || property.shorthand
                    {
                        return Err(place);
                    }
                    let key = match &property.key {
                        PropertyKey::StaticIdentifier(id) => id.name.to_string(),
                        PropertyKey::StringLiteral(s) if !s.lone_surrogates => s.value.to_string(),
                        _ => return Err(place),
                    };
                    let value = self.javascript(&property.value, depth + 1)?;
                    // `{"__proto__": …}` sets no key of that name.
                    if key == "__proto__" {
                        return Err(place);
                    }
                    push_entry(key, self.at(property.key.span()), value, &mut entries)?;
                }
                Kind::Map(entries)
            }
            Expression::ParenthesizedExpression(inner) => return self.javascript(&inner.expression, depth + 1),
            Expression::TSAsExpression(inner) => return self.javascript(&inner.expression, depth + 1),
            Expression::TSSatisfiesExpression(inner) => return self.javascript(&inner.expression, depth + 1),
            _ => return Err(span),
        };
        Ok(Node::new(kind, span))
    }
}

fn string(text: &str, span: Span) -> Node {
    let inner = Span { start: span.start + 1, end: span.end.saturating_sub(1), ..span };
    let verbatim = inner.len() == text.len();
    Node::new(Kind::String(text.to_owned()), if verbatim { inner } else { span })
}

fn javascript_number(value: f64, raw: Option<&str>, negative: bool) -> Option<Kind> {
    let decimal = raw.filter(|r| r.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'_')));
    match decimal.and_then(|raw| parse_number(raw, negative)) {
        Some(kind) => Some(kind),
        None => parse_number(&format!("{value}"), negative),
    }
}
