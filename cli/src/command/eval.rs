//! `rye eval`: evaluates requests from stdin, one per line, or a single request from flags (`language.md` 13). This
//! module only reads and prints; `semantics::eval` evaluates.

use std::io::{BufRead, BufReader, BufWriter, Write};

use clap::{ArgGroup, Args};
use rye_compiler::semantics::eval::answer;
use rye_compiler::semantics::value::parse_json;
use serde_json::{Map, Value};

use crate::CommandError;
use crate::exit::Exit;
use crate::options::Format;
use crate::report::Printer;

/// Without a flag, requests are read from stdin: {"condition": …, "facts": …}
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("request").multiple(false))]
pub struct EvalArgs {
    /// A condition: one line, or a mapping as JSON
    #[arg(long, group = "request", value_name = "CONDITION")]
    condition: Option<String>,
    /// A `${…}` template: a text, or a list or mapping as JSON
    #[arg(long, group = "request", value_name = "TEMPLATE")]
    template: Option<String>,
    /// A text with `{input:…}` placeholders
    #[arg(long, group = "request", value_name = "TEXT")]
    inputs_text: Option<String>,
    /// A capability pattern, and a text that the pattern must match as a whole
    #[arg(long, group = "request", num_args = 2, value_names = ["PATTERN", "TEXT"])]
    glob: Option<Vec<String>>,
    /// Look up the risk tier of a capability
    #[arg(long, group = "request", value_name = "CAPABILITY")]
    risk: Option<String>,
    /// Authorize a call: `{"grants": [[…]], "primary": …, "item_type": …, "item_id": …}`
    #[arg(long, group = "request", value_name = "JSON")]
    capability: Option<String>,
    /// Check that the patterns of a parent cover those of a child: `{"parent": […], "child": […]}`
    #[arg(long, group = "request", value_name = "JSON")]
    covers: Option<String>,
    /// Resolve limits: `{"defaults": {…}, "directive": {…}, "overrides": {…}, "parent": {…}}`
    #[arg(long, group = "request", value_name = "JSON")]
    limits: Option<String>,
    /// Find the first limit that a cost has reached: `{"limits": {…}, "cost": {…}}`
    #[arg(long, group = "request", value_name = "JSON")]
    check_limits: Option<String>,
    /// Apply operations to an empty ledger: `[["register", "root", 3.0], …]`
    #[arg(long, group = "request", value_name = "JSON")]
    ledger: Option<String>,
    /// A failed model call to classify: `{"status": 429, "headers": {…}, "error": {…}, "attempt": 1}`
    #[arg(long, group = "request", value_name = "JSON")]
    classify: Option<String>,
    /// Facts for a condition or template, as a JSON object
    #[arg(long, value_name = "JSON", requires = "request")]
    facts: Option<String>,
    /// Path of a fact whose value is unknown (repeatable)
    #[arg(long, value_name = "PATH", requires = "request")]
    unknown: Vec<String>,
    /// Values of the inputs of `--inputs-text`, as a JSON object
    #[arg(long, value_name = "JSON", requires = "inputs_text")]
    inputs: Option<String>,
    /// The risk table, as JSON
    #[arg(long, value_name = "JSON", requires = "risk")]
    table: Option<String>,
}

pub fn run(args: &EvalArgs, report: &Printer) -> Result<Exit, CommandError> {
    match args.request()? {
        Some(request) => eval_single(&request, report),
        None => eval_lines(),
    }
}

/// Answers every line of stdin. For an invalid line, including a line with invalid UTF-8, prints an error line and
/// continues.
fn eval_lines() -> Result<Exit, CommandError> {
    let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line)? > 0 {
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        output.write_all(answer(&String::from_utf8_lossy(&line)).as_bytes())?;
        output.write_all(b"\n")?;
        // Flush when no more input is buffered: an interactive caller waits for each answer.
        if input.buffer().is_empty() {
            output.flush()?;
        }
        line.clear();
    }
    output.flush()?;
    Ok(Exit::Success)
}

fn eval_single(request: &Map<String, Value>, report: &Printer) -> Result<Exit, CommandError> {
    let answered = answer(&Value::Object(request.clone()).to_string());
    let fine = serde_json::from_str::<Map<String, Value>>(&answered).ok().and_then(|mut map| map.shift_remove("ok"));
    match (report.format(), fine) {
        (Format::Json, fine) => {
            report.line(&answered)?;
            Ok(if fine.is_some() { Exit::Success } else { Exit::Failed })
        }
        (Format::Human | Format::Plain, Some(value)) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            report.line(&text)?;
            Ok(Exit::Success)
        }
        (Format::Human | Format::Plain, None) => {
            let error: Value = serde_json::from_str(&answered).unwrap_or_default();
            let message = error.pointer("/error/message").and_then(Value::as_str).unwrap_or(&answered);
            Err(CommandError { exit: Exit::Failed, code: None, message: message.to_owned(), help: None })
        }
    }
}

impl EvalArgs {
    /// Builds the request from the flags; `None` if no flag of the request is set.
    fn request(&self) -> Result<Option<Map<String, Value>>, CommandError> {
        let mut request = Map::new();
        let mut put = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                request.insert(key.to_owned(), value);
            }
        };
        put("condition", self.condition.as_deref().map(text_or_json));
        put("template", self.template.as_deref().map(text_or_json));
        put("inputs_text", self.inputs_text.clone().map(Value::String));
        put("risk", self.risk.clone().map(Value::String));
        if let Some([pattern, text]) = self.glob.as_deref() {
            put("glob", Some(serde_json::json!({ "pattern": pattern, "text": text })));
        }
        for (flag, value) in [
            ("capability", &self.capability),
            ("covers", &self.covers),
            ("limits", &self.limits),
            ("check_limits", &self.check_limits),
            ("ledger", &self.ledger),
            ("classify", &self.classify),
            ("facts", &self.facts),
            ("inputs", &self.inputs),
            ("table", &self.table),
        ] {
            put(flag, value.as_deref().map(|value| parse_flag(flag, value)).transpose()?);
        }
        if !self.unknown.is_empty() {
            put("unknown", Some(Value::from(self.unknown.clone())));
        }
        Ok(if request.is_empty() { None } else { Some(request) })
    }
}

/// Returns the JSON value of a list or a mapping. Any other text becomes a JSON string.
fn text_or_json(written: &str) -> Value {
    match parse_json(written) {
        Ok(value @ (Value::Array(_) | Value::Object(_))) => value,
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | Err(_) => Value::from(written),
    }
}

fn parse_flag(flag: &str, written: &str) -> Result<Value, CommandError> {
    parse_json(written).map_err(|error| {
        let flag = flag.replace('_', "-");
        CommandError::usage(format!("`--{flag}` is not valid JSON: {error}"))
    })
}
