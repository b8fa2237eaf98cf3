//! Reads a JavaScript or TypeScript tool: the exported constants and names of the module, and the signature of the
//! function that a call runs.

use oxc_allocator::Allocator;
use oxc_ast::ast::{
    ArrayExpressionElement, ArrowFunctionBody, BindingPattern, Declaration, ExportDefaultDeclarationKind, Expression,
    FormalParameters, Function, ModuleExportName, ObjectPattern, ObjectPropertyKind, PropertyKey, PropertyKind,
    Statement, UnaryOperator, VariableDeclaration, VariableDeclarationKind,
};
use oxc_parser::Parser;
use oxc_parser::config::TokensParserConfig;
use oxc_span::{GetSpan, SourceType};
use rye_grammar::data::{Entry, Kind, Node};
use rye_grammar::tool_header::{Constant, EntrySignature, Script, ValueSource};
use rye_grammar::{Parsed, SourceId, Span, Spanned, SyntaxKind};

use super::javascript_values::{self, ScriptTokens};
use super::{LiteralReader, parse_number, push_entry, syntax_error};

/// Maximum number of errors per file, because later errors are mostly consequences of the first.
const MAX_ERRORS: usize = 1;

/// Maximum estimated depth of nesting. The parser recurses without a limit. The stack of its thread suffices for this
/// depth, and real scripts nest less deeply.
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
    let parsed = Parser::new(&allocator, text, kind).with_config(TokensParserConfig).parse();
    let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut errors = Vec::new();
    for error in parsed.diagnostics.iter().take(MAX_ERRORS) {
        let label = error.labels.first();
        let start = label.map_or(0, oxc_span::LabeledSpan::offset).min(end);
        let length = label.map_or(0, oxc_span::LabeledSpan::len);
        let span = Span { source, start, end: start.saturating_add(length).min(end) };
        errors.push(syntax_error(source, &error.message, span, language));
    }
    let mut reader = JavaScriptReader {
        literals: LiteralReader::new(source),
        script: Script::default(),
        text,
        tokens: ScriptTokens { tokens: &parsed.tokens, text },
    };
    for statement in &parsed.program.body {
        reader.statement(statement);
    }
    let entry = reader.entry(&parsed.program.body);
    let block = entry.and_then(|(_, parts)| parts.block);
    reader.script.entry = entry.map(|(function, parts)| reader.signature(function, parts));
    let exports_entry = reader.script.names.iter().any(|name| matches!(name.as_str(), "execute" | "main" | "default"));
    let common_export = parsed.program.body.iter().find_map(|statement| common_export(statement, text));
    if let (Some(place), false) = (common_export, exports_entry) {
        let span = reader.literals.at(place);
        let message = "a tool must be an ES module, but this is a CommonJS export".to_owned();
        errors.push(
            SyntaxKind::Script
                .error(span, message, "not exported")
                .with_help("write `export function execute(params, projectPath) { … }` and `export const __tool_description__ = \"…\";`"),
        );
    }
    if errors.is_empty()
        && let Some(unrunnable) = javascript_values::unrunnable(reader.tokens, &parsed.program.body, block, dialect)
    {
        let span = reader.literals.at(unrunnable.span);
        errors.push(SyntaxKind::Script.error(span, unrunnable.message, unrunnable.label).with_help(unrunnable.help));
    }
    Parsed { tree: reader.script, errors }
}

/// Returns the location of a statement that exports `execute` in the form of `CommonJS` (by `exports` or
/// `module.exports`); `None` for any other statement. In a tool, this statement is an error, because a tool exports
/// `execute` as an ES module does.
fn common_export(statement: &Statement<'_>, text: &str) -> Option<oxc_span::Span> {
    let Statement::ExpressionStatement(statement) = statement else { return None };
    let Expression::AssignmentExpression(assignment) = &statement.expression else { return None };
    let target = assignment.left.span();
    let exports_entry = match text.get(target.start as usize..target.end as usize)? {
        "module.exports.execute" | "exports.execute" => true,
        "module.exports" => {
            let Expression::ObjectExpression(object) = &assignment.right else { return None };
            object.properties.iter().any(|property| {
                matches!(property, ObjectPropertyKind::ObjectProperty(property)
                    if matches!(&property.key, PropertyKey::StaticIdentifier(id) if id.name == "execute"))
            })
        }
        _ => false,
    };
    exports_entry.then_some(target)
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

struct JavaScriptReader<'t> {
    literals: LiteralReader,
    script: Script,
    text: &'t str,
    tokens: ScriptTokens<'t>,
}

/// The parameters and the statements of a function.
#[derive(Clone, Copy)]
struct FunctionParts<'a> {
    parameters: &'a FormalParameters<'a>,
    statements: &'a [Statement<'a>],
    /// The span of the block with the statements; `None` for an arrow function that consists of an expression.
    block: Option<oxc_span::Span>,
    is_generator: bool,
}

impl<'a> FunctionParts<'a> {
    fn of_function(function: &'a Function<'a>) -> Self {
        Self {
            parameters: &function.params,
            statements: function.body.as_ref().map_or(&[], |body| &body.statements),
            block: function.body.as_ref().map(|body| body.span),
            is_generator: function.generator,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "no other expression is a function")]
    fn of_expression(expression: &'a Expression<'a>) -> Option<Self> {
        match expression {
            Expression::FunctionExpression(function) => Some(Self::of_function(function)),
            Expression::ArrowFunctionExpression(function) => {
                let (statements, block) = match &function.body {
                    ArrowFunctionBody::FunctionBody(body) => (&body.statements[..], Some(body.span)),
                    _ => (&[][..], None),
                };
                Some(Self { parameters: &function.params, statements, block, is_generator: false })
            }
            Expression::ParenthesizedExpression(inner) => Self::of_expression(&inner.expression),
            _ => None,
        }
    }

    /// Returns the function that a `const` declaration assigns to `name`. `None` if the declaration is not a `const`,
    /// does not declare `name`, or assigns another kind of value to `name`.
    fn of_constant(variables: &'a VariableDeclaration<'a>, name: &str) -> Option<Self> {
        let is_constant = variables.kind == VariableDeclarationKind::Const;
        let named = |id: &BindingPattern<'_>| matches!(id, BindingPattern::BindingIdentifier(id) if id.name == name);
        let variable = variables.declarations.iter().find(|variable| is_constant && named(&variable.id))?;
        Self::of_expression(variable.init.as_ref()?)
    }

    /// Returns the function that a top-level statement declares under this name, exported or not; `None` if the
    /// statement declares no such function.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other statement declares a function")]
    fn declared(statement: &'a Statement<'a>, name: &str) -> Option<Self> {
        let of_function = |function: &'a Function<'a>| {
            function.id.as_ref().is_some_and(|id| id.name == name).then(|| Self::of_function(function))
        };
        match statement {
            Statement::FunctionDeclaration(function) => of_function(function),
            Statement::VariableDeclaration(variables) => Self::of_constant(variables, name),
            Statement::ExportDeclaration(export) => match &export.declaration {
                Declaration::FunctionDeclaration(function) => of_function(function),
                Declaration::VariableDeclaration(variables) => Self::of_constant(variables, name),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the function that this file exports as its default; `None` if the file does not declare that function
    /// itself.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other declaration is a function")]
    fn default_export(statements: &'a [Statement<'a>]) -> Option<Self> {
        let export = statements.iter().find_map(|statement| match statement {
            Statement::ExportDefaultDeclaration(export) => Some(export),
            _ => None,
        })?;
        match &export.declaration {
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => Some(Self::of_function(function)),
            ExportDefaultDeclarationKind::Identifier(id) => {
                statements.iter().find_map(|statement| Self::declared(statement, &id.name))
            }
            other => Self::of_expression(other.as_expression()?),
        }
    }
}

impl JavaScriptReader<'_> {
    /// Returns the name and the parts of the function that a call runs: `execute`, else the default export, else
    /// `main`. `None` if this file does not declare that function.
    fn entry<'a>(&self, statements: &'a [Statement<'a>]) -> Option<(&'static str, FunctionParts<'a>)> {
        let has = |name: &str| self.script.names.iter().any(|one| one == name);
        let declared = |name: &str| statements.iter().find_map(|statement| FunctionParts::declared(statement, name));
        let (function, parts) = if has("execute") {
            ("execute", declared("execute"))
        } else if has("main") && !has("default") {
            ("main", declared("main"))
        } else {
            ("default", FunctionParts::default_export(statements))
        };
        Some((function, parts?))
    }

    fn signature(&self, function: &str, parts: FunctionParts<'_>) -> EntrySignature {
        let FunctionParts { parameters, statements, block, .. } = parts;
        let written = |span: oxc_span::Span| {
            let text = self.text.get(span.start as usize..span.end as usize).unwrap_or_default();
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let spanned = |span: oxc_span::Span| Spanned::new(written(span), self.literals.at(span));
        let mut reads = Vec::new();
        let mut optional_reads = Vec::new();
        let mut reads_are_complete = false;
        match parameters.items.first().map(|first| &first.pattern) {
            Some(BindingPattern::ObjectPattern(pattern)) => {
                self.pattern_reads(pattern, &mut reads);
                reads_are_complete = pattern.rest.is_none() && pattern.properties.iter().all(|one| !one.computed);
            }
            Some(BindingPattern::BindingIdentifier(object)) => {
                if let Some(keys) = block.and_then(|block| self.tokens.member_reads(block, &object.name)) {
                    reads_are_complete = true;
                    optional_reads =
                        keys.into_iter().map(|(key, at)| Spanned::new(key, self.literals.at(at))).collect();
                }
                // A `const { name } = params;` among the declarations at the start of the function always runs, so the
                // caller must set these names. Later declarations are not read, because they may follow a `return`.
                for statement in statements {
                    let Statement::VariableDeclaration(variables) = statement else { break };
                    for variable in &variables.declarations {
                        if let (BindingPattern::ObjectPattern(pattern), Some(Expression::Identifier(id))) =
                            (&variable.id, &variable.init)
                            && id.name == object.name
                        {
                            self.pattern_reads(pattern, &mut reads);
                        }
                    }
                }
            }
            Some(BindingPattern::ArrayPattern(_) | BindingPattern::AssignmentPattern(_)) | None => {}
        }
        EntrySignature {
            function: function.to_owned(),
            span: self.literals.at(parameters.span),
            names: parameters.items.iter().map(|item| written(item.pattern.span())).collect(),
            required: parameters.items.iter().filter(|item| item.initializer.is_none() && !item.optional).count(),
            is_variadic: parameters.rest.is_some(),
            requires_names: false,
            reads,
            optional_reads,
            reads_are_complete,
            other_source: self.tokens.command_line(block).map(|at| (ValueSource::CommandLine, spanned(at))),
            lost_result: self.lost_result(function, parts).map(spanned),
        }
    }

    /// Returns the place of a result that the function computes and does not return: the last print call or, without a
    /// print call, a last statement that is only a value. `None` for `main`, whose printed text is its result, for
    /// generators, and if the function returns a value.
    fn lost_result(&self, function: &str, parts: FunctionParts<'_>) -> Option<oxc_span::Span> {
        if function == "main" || parts.is_generator || self.tokens.returns_value(parts.block?) {
            return None;
        }
        let last = parts.statements.last()?;
        let is_value = if let Statement::LabeledStatement(labeled) = last {
            // The braces of `(params) => { n: 1 }` are a block, so `n` is a label.
            parts.statements.len() == 1 && matches!(&labeled.body, Statement::ExpressionStatement(_))
        } else if let Statement::ExpressionStatement(last) = last {
            matches!(
                &last.expression,
                Expression::Identifier(_)
                    | Expression::ParenthesizedExpression(_)
                    | Expression::BinaryExpression(_)
                    | Expression::TemplateLiteral(_)
            )
        } else {
            false
        };
        let last = is_value.then(|| last.span());
        self.tokens.printed(parts.block?).or(last)
    }

    /// Adds the keys that a destructuring pattern reads from an object, except keys with a default.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other key is a literal")]
    fn pattern_reads(&self, pattern: &ObjectPattern<'_>, into: &mut Vec<Spanned<String>>) {
        for property in &pattern.properties {
            if property.computed || matches!(property.value, BindingPattern::AssignmentPattern(_)) {
                continue;
            }
            let key = match &property.key {
                PropertyKey::StaticIdentifier(id) => id.name.to_string(),
                PropertyKey::StringLiteral(text) => text.value.to_string(),
                _ => continue,
            };
            into.push(Spanned::new(key, self.literals.at(property.key.span())));
        }
    }

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

    /// Adds an exported name (`export { name }`) to the names and the constants of the script. The constant has no
    /// value, because an export list contains only names.
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

    /// Converts a literal expression to its value. The error is the span of the first part that is not a literal.
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
                    // In JavaScript, `{"__proto__": …}` sets the prototype of the object, not a key.
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
