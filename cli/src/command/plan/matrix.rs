//! `rye plan ID --all`: prints every context of a directive. A context is a plan that the directive can have, with the
//! conditions on its inputs that lead to this plan.

use rye_compiler::compile::CompileRequest;
use rye_compiler::report::alternatives::describe_when;
use rye_compiler::report::matrix::{Matrix, MatrixError, build_matrix};
use rye_compiler::report::render::table::group_thousands;
use rye_compiler::world::World;
use serde_json::Value;

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::present::table::Table;
use crate::report::{Printer, printable};

pub fn run(world: &dyn World, request: &CompileRequest, report: &Printer) -> Result<Exit, CommandError> {
    let found = build_matrix(world, request).map_err(|error| {
        let failure = CommandError::failed(error.to_string());
        match error {
            MatrixError::Broken(_) => failure,
            MatrixError::TooMany(_) => failure.with_help("set some of the inputs with `--input`"),
        }
    })?;
    let exit = if found.contexts.is_empty() { Exit::Failed } else { Exit::Success };
    match report.format() {
        Format::Json => report.json(&found)?,
        Format::Human | Format::Plain => print(&found, report)?,
    }
    Ok(exit)
}

fn print(found: &Matrix, report: &Printer) -> Result<(), CommandError> {
    let mut table = Table::new(&["WHEN", "TOKENS", "FIRST", "TYPICAL", "WORST", "EXTRA PARTS"], &[1, 2, 3, 4]);
    let common: Vec<&String> = match found.contexts.split_first() {
        Some((first, rest)) => first.parts.iter().filter(|p| rest.iter().all(|c| c.parts.contains(p))).collect(),
        None => Vec::new(),
    };
    for (context, is_rest) in
        found.contexts.iter().map(|context| (context, false)).chain(found.rest.iter().map(|context| (context, true)))
    {
        let dollars = |cost: &Option<Value>| {
            cost.as_ref().map_or_else(|| "–".to_owned(), rye_compiler::report::render::json::dollars)
        };
        let own: Vec<&str> = context.parts.iter().filter(|p| !common.contains(p)).map(String::as_str).collect();
        table.row(vec![
            if is_rest { "none of the above".to_owned() } else { describe_when(&context.when) }.into(),
            format_tokens(context.tokens, report.format()).into(),
            dollars(&context.first.cost).into(),
            dollars(&context.typical.cost).into(),
            dollars(&context.worst.cost).into(),
            own.join(", ").into(),
        ]);
    }
    for line in table.lines(report.format()) {
        report.text(&line)?;
    }
    let (combinations, contexts) = (found.combinations as u64, found.contexts.len() as u64);
    let count = crate::present::format_count;
    report.note(&format!("{} of inputs, {}", count(combinations, "combination"), count(contexts, "context")));
    for refused in &found.refused {
        let text = format!("no plan when: {} (errors: {})", describe_when(&refused.when), refused.codes.join(", "));
        report.note(&printable(&text));
    }
    for refused in &found.rest_refused {
        let route = refused.chain.join(" → ");
        let text =
            format!("no plan for `none of the above` with the chain {route} (errors: {})", refused.codes.join(", "));
        report.note(&printable(&text));
    }
    if !found.open.is_empty() {
        report.note(&printable(&format!(
            "`none of the above` is the plan with unknown inputs, because no inputs were found for: {}",
            describe_when(&found.open)
        )));
    }
    Ok(())
}

/// Formats a token count: with thousands separators for a terminal, without them otherwise.
fn format_tokens(count: u64, format: Format) -> String {
    if format == Format::Human { group_thousands(count) } else { count.to_string() }
}
