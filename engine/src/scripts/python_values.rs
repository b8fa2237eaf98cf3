//! Finds mistakes in a Python tool: values that the tool reads from another source than its arguments, and results that
//! it prints instead of returning them.

use std::collections::BTreeSet;

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{Expr, ExprCall, Stmt, StmtFunctionDef};
use ruff_text_size::{Ranged, TextRange};
use rye_grammar::tool_header::ValueSource;

/// Returns the first place where a call of `entry` reads the command line or, if `entry` is `execute`, the standard
/// input. Searches the statements of the module, `entry`, and the functions of the module that these call by name. A
/// read of the command line does not count if the script also checks the arguments or reads the standard input, because
/// such a script may also work without arguments.
pub(super) fn other_source(module: &[Stmt], entry: &StmtFunctionDef) -> Option<(ValueSource, TextRange)> {
    let mut reads = SourceReads::default();
    for statement in module {
        if matches!(statement, Stmt::Assign(_) | Stmt::Expr(_) | Stmt::AnnAssign(_)) {
            reads.visit_stmt(statement);
        }
        if let Stmt::ImportFrom(import) = statement
            && import.module.as_ref().is_some_and(|module| module.as_str() == "sys")
        {
            reads.has_plain_argv |=
                import.names.iter().any(|name| name.name.as_str() == "argv" && name.asname.is_none());
        }
    }
    let mut seen = BTreeSet::from([entry.name.as_str()]);
    reads.visit_body(&entry.body);
    while let Some(name) = reads.called.pop() {
        let functions = module.iter().filter_map(Stmt::as_function_def_stmt);
        let function = { functions }.find(|function| function.name.as_str() == name);
        if let Some(function) = function
            && seen.insert(function.name.as_str())
        {
            reads.visit_body(&function.body);
        }
    }
    let command_line = reads.command_line.filter(|_| !reads.is_conditional && reads.standard_input.is_none());
    if let Some(range) = command_line {
        return Some((ValueSource::CommandLine, range));
    }
    let is_execute = entry.name.as_str() == "execute";
    reads.standard_input.filter(|_| is_execute).map(|range| (ValueSource::StandardInput, range))
}

#[derive(Default)]
struct SourceReads<'a> {
    command_line: Option<TextRange>,
    standard_input: Option<TextRange>,
    /// True if the script may work without arguments: it uses a `try` statement, sets `sys.argv`, or uses `sys.argv` in
    /// another way than by reading one element.
    is_conditional: bool,
    /// True if the module imports the name `argv` from `sys`.
    has_plain_argv: bool,
    called: Vec<&'a str>,
}

impl SourceReads<'_> {
    fn is_argv(&self, expression: &Expr) -> bool {
        let is_plain = expression.as_name_expr().is_some_and(|name| name.id.as_str() == "argv");
        (is_plain && self.has_plain_argv) || is_member(expression, "sys", "argv")
    }
}

impl<'a> Visitor<'a> for SourceReads<'a> {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        // Inside of a `try`, a missing argument may be expected.
        self.is_conditional |= matches!(statement, Stmt::Try(_));
        visitor::walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Subscript(subscript) = expression
            && self.is_argv(&subscript.value)
        {
            let is_first = matches!(&*subscript.slice, Expr::NumberLiteral(number) if number.value.as_int().is_some_and(|n| *n == 0));
            if !is_first {
                self.command_line.get_or_insert(subscript.range());
            }
            self.is_conditional |= !subscript.ctx.is_load();
            return;
        }
        self.is_conditional |= self.is_argv(expression);
        if let Expr::Call(call) = expression {
            if let Expr::Name(name) = &*call.func {
                self.called.push(name.id.as_str());
            }
            if reads_standard_input(call) {
                self.standard_input.get_or_insert(call.range());
            }
            let is_parser = call.func.as_attribute_expr().is_some_and(|member| member.attr.as_str() == "parse_args");
            if is_parser && call.arguments.args.is_empty() && call.arguments.keywords.is_empty() {
                self.command_line.get_or_insert(call.range());
            }
        }
        visitor::walk_expr(self, expression);
    }
}

/// Returns true for `input()`, `sys.stdin.read()`, `sys.stdin.buffer.read()` and `json.load(sys.stdin)`.
fn reads_standard_input(call: &ExprCall) -> bool {
    let is_input = |expression: &Expr| {
        is_member(expression, "sys", "stdin")
            || expression
                .as_attribute_expr()
                .is_some_and(|member| member.attr.as_str() == "buffer" && is_member(&member.value, "sys", "stdin"))
    };
    if let Expr::Name(name) = &*call.func {
        return name.id.as_str() == "input" && call.arguments.args.len() <= 1;
    }
    call.func.as_attribute_expr().is_some_and(|member| {
        let is_read = matches!(member.attr.as_str(), "read" | "readline" | "readlines") && is_input(&member.value);
        is_read || (member.attr.as_str() == "load" && call.arguments.args.first().is_some_and(is_input))
    })
}

fn is_member(expression: &Expr, object: &str, name: &str) -> bool {
    expression.as_attribute_expr().is_some_and(|member| {
        member.attr.as_str() == name && member.value.as_name_expr().is_some_and(|owner| owner.id.as_str() == object)
    })
}

/// Returns the place of a result that `execute` computes and does not return: a print call or, without a print call, a
/// last statement that is only a value. `None` for another function, or if the function returns or yields a value
/// anywhere.
pub(super) fn lost_result(function: &StmtFunctionDef) -> Option<TextRange> {
    let mut result = ResultUse::default();
    result.visit_body(&function.body);
    if function.name.as_str() != "execute" || result.returns {
        return None;
    }
    let is_value = |expression: &Expr| {
        matches!(
            expression,
            Expr::Dict(_) | Expr::List(_) | Expr::Tuple(_) | Expr::Name(_) | Expr::BinOp(_) | Expr::FString(_)
        )
    };
    let last = function.body.last().and_then(Stmt::as_expr_stmt).filter(|last| is_value(&last.value));
    result.printed.or(last.map(Ranged::range))
}

#[derive(Default)]
struct ResultUse {
    returns: bool,
    printed: Option<TextRange>,
}

impl<'a> Visitor<'a> for ResultUse {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        if matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_)) {
            return;
        }
        self.returns |= statement.as_return_stmt().is_some_and(|end| end.value.is_some());
        visitor::walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        self.returns |= matches!(expression, Expr::Yield(_) | Expr::YieldFrom(_));
        if let Expr::Call(call) = expression {
            let is_print = call.func.as_name_expr().is_some_and(|name| name.id.as_str() == "print");
            let is_write = call
                .func
                .as_attribute_expr()
                .is_some_and(|member| member.attr.as_str() == "write" && is_member(&member.value, "sys", "stdout"));
            if (is_print && call.arguments.find_keyword("file").is_none()) || is_write {
                self.printed = Some(call.range());
            }
        }
        visitor::walk_expr(self, expression);
    }
}
