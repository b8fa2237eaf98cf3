//! `rye mcp serve`: an MCP server on stdin and stdout, or on a loopback port. Only MCP messages are written to stdout.

use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use rye_compiler::approvals::HeadlessPolicy;
use rye_engine::engine::{ApprovalPolicy, Engine, Providers};
use rye_engine::event::Event;
use rye_engine::mcp_server::{AccessToken, ClientProviders, DirectiveServer, MCP_PATH};
use rye_engine::thread_id::ThreadId;
use tokio::signal::unix::{SignalKind, signal};

use crate::CommandError;
use crate::command::run::ask;
use crate::command::run::compile_directive;
use crate::command::run::sandbox;
use crate::exit::Exit;
use crate::present::event::event_view;
use crate::present::truncate_line;
use crate::report::{Printer, printable};
use crate::run_request::RunRequestArgs;
use crate::runtime;
use crate::workspace::Spaces;

/// Maximum length of a progress message, in characters.
const MAX_PROGRESS_CHARS: usize = 200;

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Directive whose permissions, tools and limits apply to the client
    #[arg(long, value_name = "ID", default_value = "rye/mcp/session")]
    directive: String,
    /// Serve streamable HTTP at this loopback address instead: `127.0.0.1:8330`, port 0 for any free port
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    #[command(flatten)]
    call: RunRequestArgs,
}

pub fn run(args: &ServeArgs, spaces: &Spaces, report: &Printer) -> Result<Exit, CommandError> {
    if let Some(address) = args.http.filter(|address| !address.ip().is_loopback()) {
        return Err(CommandError::usage(format!("`{address}` is not a loopback address"))
            .with_help("use `127.0.0.1:PORT`, so that only programs of this machine can connect"));
    }
    if args.call.reads_stdin() && args.http.is_none() {
        return Err(CommandError::usage("`--inputs -` is not allowed here: stdin holds the messages of the client")
            .with_help("name a file: `--inputs FILE`"));
    }
    // The client takes the place of the model. A script of the project that simulates a model is never used, so such a
    // script needs no trust.
    let compilation = match compile_directive(&args.directive, &args.call, None, true, spaces, report)? {
        Ok(compilation) => compilation,
        Err(exit) => return Ok(exit),
    };
    let token = match args.http {
        Some(_) => Some(read_token()?),
        None => None,
    };
    let world = spaces.open()?;
    sandbox::apply_run_settings(&world, spaces)?;
    let mut options = spaces.engine_options(ApprovalPolicy::Deny)?;
    let providers = Arc::new(ClientProviders::new(&compilation.plan, options.providers));
    options.providers = Arc::clone(&providers) as Arc<dyn Providers>;
    // Stdin belongs to the client, so no user can answer, and a suspended session cannot serve calls: `queue` acts as
    // `deny`.
    let unattended = match HeadlessPolicy::from_settings(&world) {
        HeadlessPolicy::Allow => HeadlessPolicy::Allow,
        HeadlessPolicy::Queue | HeadlessPolicy::Deny => HeadlessPolicy::Deny,
    };
    if let Some(text) = ask::headless_warning(&compilation.approvals_required, unattended) {
        report.note(&printable(&text));
    }
    options.approvals = ask::headless_handler(spaces, unattended, []);
    // A client on stdio waits for each result, so few worker threads suffice. Over HTTP, several clients call at the
    // same time.
    let workers = args.http.map_or(runtime::WORKERS_FOR_ONE_CLIENT, |_| runtime::WORKERS_FOR_SEVERAL_THREADS);
    let runtime = runtime::start_runtime(workers)?;
    let ended = runtime.block_on(async {
        let engine = Engine::open(&spaces.project, options)?;
        let server = DirectiveServer::new(&engine, *compilation, &providers, Arc::new(progress_line));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let ended = tokio::select! {
            ended = serve(&server, args.http.zip(token), report) => ended,
            stopped = tokio::signal::ctrl_c() => stopped.map_err(|e| e.to_string()),
            _ = terminate.recv() => Ok(()),
            _ = hang_up.recv() => Ok(()),
        };
        server.end().await;
        engine.remove_owner_file();
        Ok::<_, CommandError>(ended)
    });
    // The runtime does not wait for the thread that reads stdin, because the client may keep stdin open.
    runtime.shutdown_background();
    ended?.map_err(CommandError::failed)?;
    Ok(Exit::Success)
}

/// The access token of the server. `is_chosen` is true if the user chose the token.
struct ServeToken {
    token: AccessToken,
    is_chosen: bool,
}

/// Returns the access token that `RYE_MCP_TOKEN` holds, or a new one if the variable is not set.
fn read_token() -> Result<ServeToken, CommandError> {
    match std::env::var("RYE_MCP_TOKEN") {
        Ok(text) => {
            let token = AccessToken::parse(&text);
            let token = token.map_err(|error| CommandError::usage(format!("`RYE_MCP_TOKEN`: {error}")))?;
            Ok(ServeToken { token, is_chosen: true })
        }
        Err(std::env::VarError::NotPresent) => {
            let token = AccessToken::generate().map_err(CommandError::failed)?;
            Ok(ServeToken { token, is_chosen: false })
        }
        Err(error) => Err(CommandError::usage(format!("`RYE_MCP_TOKEN`: {error}"))),
    }
}

/// Serves on stdin and stdout or, with `http`, at a loopback address. Prints the address, and the token if it was
/// generated.
async fn serve(
    server: &DirectiveServer,
    http: Option<(SocketAddr, ServeToken)>,
    report: &Printer,
) -> Result<(), String> {
    let Some((address, ServeToken { token, is_chosen })) = http else { return server.stdio().await };
    let listener =
        tokio::net::TcpListener::bind(address).await.map_err(|e| format!("cannot listen on `{address}`: {e}"))?;
    let bound = listener.local_addr().map_err(|e| e.to_string())?;
    report.note(&format!("http://{bound}{MCP_PATH}"));
    if !is_chosen {
        report.note(&format!("Authorization: Bearer {}", token.as_str()));
    }
    server.http(listener, token).await
}

/// Formats an event of a thread as the message of a progress notification.
fn progress_line(thread: &ThreadId, event: &Event) -> String {
    let what = truncate_line(&printable(&event_view(event).line), MAX_PROGRESS_CHARS);
    format!("{thread}: {} {what}", event.body.reader_name())
}
