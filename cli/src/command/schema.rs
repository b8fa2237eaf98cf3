//! `rye schema [OUTPUT]`: prints the JSON Schemas of `--format json` outputs, and with `--inputs` those of the files
//! that people write. New YAML files name their schema in a comment that editors read.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rye_compiler::input_schema::{InputSchema, input_schemas};
use rye_compiler::item_graph::ItemGraph;
use rye_compiler::report::diff::PlanDiff;
use rye_compiler::report::lock::Lock;
use rye_compiler::report::matrix::Matrix;
use rye_compiler::report::render::json::{GraphReport, PlanReport};
use rye_compiler::report::render::prompt::PromptOutput;
use schemars::{JsonSchema, Schema, schema_for};
use serde::Serialize;

use crate::CommandError;
use crate::command::assert::AssertOutput;
use crate::command::chat::json::{ChatRequest, ChatResponse};
use crate::command::check::CheckOutput;
use crate::command::doctor::DoctorOutput;
use crate::command::explain::ExplainOutput;
use crate::command::fetch::{FetchOutput, HitsOutput};
use crate::command::fmt::FmtOutput;
use crate::command::init::InitOutput;
use crate::command::keys::KeysOutput;
use crate::command::lock::LockOutput;
#[cfg(feature = "mcp")]
use crate::command::mcp::McpServerOutput;
use crate::command::new::NewOutput;
use crate::command::plan::NoPlanOutput;
use crate::command::plan::diff::routes::RouteDiffsOutput;
use crate::command::plan::routes::RoutesOutput;
use crate::command::providers::{ProviderTestOutput, ProvidersOutput};
use crate::command::run::{DeltaOutput, DetachOutput, EventOutput, RunOutput};
use crate::command::sign::SignaturesOutput;
use crate::command::threads::{
    ApprovalsOutput, ListOutput, ProveOutput, RepairOutput, SearchOutput, ShowOutput, TranscriptOutput, VerifyOutput,
    WaitOutput,
};
use crate::command::trust::{TrustOutput, TrustedProjectsOutput};
use crate::command::why::WhyOutput;
use crate::exit::Exit;
use crate::input_schemas::write_schema;
use crate::options::Format;
use crate::report::diagnostic::DiagnosticOutput;
use crate::report::{ErrorOutput, Printer};

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Name of the output (default: list the names)
    #[arg(value_enum)]
    output: Option<SchemaOutput>,
    /// Print the JSON Schemas of input files instead: tools, knowledge metadata, settings
    #[arg(long, conflicts_with = "output")]
    inputs: bool,
    /// Write the schema of each kind of input file to this folder, as `NAME.json`
    #[arg(long, value_name = "DIR", requires = "inputs")]
    to: Option<PathBuf>,
}

/// Output of `rye schema --inputs`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct InputSchemasOutput {
    /// The schemas, by kind of file.
    pub schemas: Vec<InputSchemaOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct InputSchemaOutput {
    /// Name of the schema, and of its file.
    pub name: String,
    /// Pattern of the paths of the described files, relative to the project.
    pub files: String,
    /// File with the schema; absent without `--to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The JSON Schema; absent with `--to`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOutput {
    Approvals,
    Assert,
    Chat,
    Check,
    Detach,
    Doctor,
    Error,
    Explain,
    Hits,
    Keys,
    Plan,
    PlanDiff,
    PlanDiffRoutes,
    PlanGraph,
    PlanPrompt,
    Proof,
    NoPlan,
    Providers,
    ProviderTest,
    Why,
    Diagnostic,
    Eval,
    Event,
    Fetch,
    Fmt,
    Graph,
    Init,
    InputSchemas,
    Repair,
    Lock,
    LockFile,
    Matrix,
    PlanRoutes,
    #[cfg(feature = "mcp")]
    Mcp,
    New,
    Run,
    Search,
    Thread,
    Threads,
    Signatures,
    Transcript,
    Trust,
    TrustedProjects,
    Verify,
    Wait,
}

impl SchemaOutput {
    pub fn schema(self) -> Schema {
        match self {
            Self::Approvals => schema_for!(ApprovalsOutput),
            Self::Assert => schema_for!(AssertOutput),
            Self::Chat => schema_for!(ChatLine),
            Self::Doctor => schema_for!(DoctorOutput),
            Self::Error => schema_for!(ErrorOutput),
            Self::Explain => schema_for!(ExplainOutput),
            Self::Hits => schema_for!(HitsOutput),
            Self::Keys => schema_for!(KeysOutput),
            Self::Signatures => schema_for!(SignaturesOutput),
            Self::Trust => schema_for!(TrustOutput),
            Self::TrustedProjects => schema_for!(TrustedProjectsOutput),
            Self::Plan => schema_for!(PlanReport),
            Self::Proof => schema_for!(ProveOutput),
            Self::PlanDiff => schema_for!(PlanDiff),
            Self::PlanDiffRoutes => schema_for!(RouteDiffsOutput),
            Self::NoPlan => schema_for!(NoPlanOutput),
            Self::Providers => schema_for!(ProvidersOutput),
            Self::ProviderTest => schema_for!(ProviderTestOutput),
            Self::Why => schema_for!(WhyOutput),
            Self::Check => schema_for!(CheckOutput),
            Self::Diagnostic => schema_for!(DiagnosticOutput),
            Self::Eval => schema_for!(EvalOutput),
            Self::Event => schema_for!(EventLine),
            Self::Fetch => schema_for!(FetchOutput),
            Self::Fmt => schema_for!(FmtOutput),
            Self::PlanGraph => schema_for!(GraphReport),
            Self::PlanPrompt => schema_for!(PromptOutput),
            Self::Graph => schema_for!(ItemGraph),
            Self::Lock => schema_for!(LockOutput),
            Self::LockFile => schema_for!(Lock),
            Self::Matrix => schema_for!(Matrix),
            Self::PlanRoutes => schema_for!(RoutesOutput),
            Self::Init => schema_for!(InitOutput),
            Self::InputSchemas => schema_for!(InputSchemasOutput),
            Self::Repair => schema_for!(RepairOutput),
            #[cfg(feature = "mcp")]
            Self::Mcp => schema_for!(Vec<McpServerOutput>),
            Self::New => schema_for!(NewOutput),
            Self::Run => schema_for!(RunOutput),
            Self::Thread => schema_for!(ShowOutput),
            Self::Threads => schema_for!(ListOutput),
            Self::Detach => schema_for!(DetachOutput),
            Self::Search => schema_for!(SearchOutput),
            Self::Verify => schema_for!(VerifyOutput),
            Self::Wait => schema_for!(WaitOutput),
            Self::Transcript => schema_for!(TranscriptOutput),
        }
    }
}

/// A line that `rye run --format json --events` prints before the last line, which is the result.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is used")]
enum EventLine {
    Event(EventOutput<'static>),
    Delta(DeltaOutput<'static>),
}

/// A line of `rye chat --format json`: a request on stdin, or a response on stdout between the events of `rye schema
/// event`.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is used")]
enum ChatLine {
    Request(ChatRequest),
    Response(ChatResponse),
}

/// A line of `rye eval` output.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only the schema is used")]
enum EvalOutput {
    Fine {
        /// The id of the request, if the request has an id.
        id: Option<serde_json::Value>,
        ok: serde_json::Value,
    },
    Refused {
        id: Option<serde_json::Value>,
        error: EvalRefusal,
    },
}

#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "only the schema is used")]
struct EvalRefusal {
    code: String,
    message: String,
}

pub fn run(args: &SchemaArgs, report: &Printer) -> Result<Exit, CommandError> {
    if let Some(output) = args.output {
        let text = serde_json::to_string_pretty(&output.schema()).map_err(std::io::Error::other)?;
        report.line(&text)?;
        return Ok(Exit::Success);
    }
    if args.inputs {
        return print_input_schemas(args.to.as_deref(), report);
    }
    let values = SchemaOutput::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
    if report.format() == Format::Json {
        report.json(&names)?;
    } else {
        names.iter().try_for_each(|name| report.line(name))?;
    }
    Ok(Exit::Success)
}

/// Prints the schemas of input files, or writes them to a folder.
fn print_input_schemas(folder: Option<&Path>, report: &Printer) -> Result<Exit, CommandError> {
    let mut schemas = Vec::new();
    for InputSchema { name, files, schema } in input_schemas() {
        let path = folder.map(|folder| write_schema(folder, &name, &schema)).transpose()?;
        let schema = path.is_none().then_some(schema);
        schemas.push(InputSchemaOutput { name, files, path, schema });
    }
    if report.format() == Format::Json {
        report.json(&InputSchemasOutput { schemas })?;
        return Ok(Exit::Success);
    }
    for one in &schemas {
        report.line(&format!("{}  {}", one.path.as_ref().unwrap_or(&one.name), one.files))?;
    }
    if folder.is_none() {
        report.note("`--to DIR` writes the schemas, `--format json` prints them");
    }
    Ok(Exit::Success)
}
