//! `rye mcp serve`: an MCP server on stdin and stdout, or on a loopback port. Nothing else is written to stdout.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use rye_compiler::approvals::HeadlessPolicy;
use rye_engine::driver::StreamEvent;
use rye_engine::engine::{ApprovalPolicy, Engine, EngineError, StartOptions, ThreadHandle};
use rye_engine::event::{ControlMessage, EventBody};
use rye_engine::thread_id::ThreadId;
use rye_engine::tool::mcp::serve::{SESSION_END_TIMEOUT, SessionObserver, session_sides};

use crate::CommandError;
use crate::args::Format;
use crate::command::run::ask;
use crate::command::run::compile_directive;
use crate::command::run::sandbox;
use crate::exit::Exit;
use crate::present::event::event_view;
use crate::present::truncate_line;
use crate::report::{Printer, printable};
use crate::run_request::RunRequestArgs;
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
            .with_help("use `127.0.0.1:PORT`; every client of the port has the directive's permissions"));
    }
    // The client answers in place of a model, so no script of the project is read for this directive.
    let compilation = match compile_directive(&args.directive, &args.call, None, true, spaces, report)? {
        Ok(compilation) => compilation,
        Err(exit) => return Ok(exit),
    };
    let world = spaces.open()?;
    sandbox::enable_bubblewrap(&world, spaces)?;
    let mut options = spaces.engine_options(ApprovalPolicy::Deny)?;
    let (face, callers, mut below) = session_sides(&compilation.plan, options.providers);
    options.providers = Arc::new(callers);
    // Stdin belongs to the client, and a suspended session could answer no call.
    let unattended = match HeadlessPolicy::from_settings(&world, spaces.own) {
        HeadlessPolicy::Allow => HeadlessPolicy::Allow,
        HeadlessPolicy::Queue | HeadlessPolicy::Deny => HeadlessPolicy::Deny,
    };
    if let Some(text) = ask::headless_warning(&compilation.approvals_required, unattended) {
        report.note(&printable(&text));
    }
    options.approvals = ask::approval_handler(Format::Json, spaces, unattended, []);
    let runtime = crate::runtime::start_runtime(crate::runtime::WORKERS_FOR_SEVERAL_THREADS)?;
    let ended = runtime.block_on(async {
        let engine = Engine::open(&spaces.project, options)?;
        let mut handle = engine.start(&compilation, StartOptions::default()).await?;
        report.detail(&format!("thread: {}", handle.thread_id));
        let speak = async {
            let Some(address) = args.http else { return face.stdio().await };
            let listener = tokio::net::TcpListener::bind(address).await.map_err(|e| format!("`{address}`: {e}"))?;
            let bound = listener.local_addr().map_err(|e| e.to_string())?;
            report.note(&format!("http://{bound}/mcp"));
            face.http(listener).await
        };
        let spoken = tokio::select! {
            spoken = speak => spoken,
            stopped = tokio::signal::ctrl_c() => stopped.map_err(|e| e.to_string()),
            () = forward_progress(&engine, &mut handle, &mut below) => Err("the session's thread has ended".to_owned()),
        };
        // Dropping the server has notified the thread that its client is gone.
        tokio::time::timeout(SESSION_END_TIMEOUT, handle.join()).await.ok();
        Ok::<_, EngineError>(spoken)
    });
    // The client may keep stdin open.
    runtime.shutdown_background();
    ended?.map_err(CommandError::failed)?;
    Ok(Exit::Fine)
}

/// Sends the client the progress of the threads below its session, and forwards cancelled calls. Ends when the thread
/// has ended.
async fn forward_progress(engine: &Engine, handle: &mut ThreadHandle, below: &mut SessionObserver) {
    let session = handle.thread_id.clone();
    let mut running = BTreeSet::new();
    loop {
        let live = tokio::select! {
            live = handle.live.next() => live,
            () = below.cancelled() => {
                for child in &running {
                    engine.send_to(child, &ControlMessage::Cancel);
                }
                continue;
            }
        };
        let Some(live) = live else { return };
        let StreamEvent::Event { thread, event } = live else { continue };
        let own = thread == session;
        if own {
            if let EventBody::ChildSpawned(child) = &event.body {
                running.extend(ThreadId::parse(&child.thread_id).ok());
            } else if let EventBody::ChildEnded(child) = &event.body {
                running.retain(|known: &ThreadId| known.as_str() != child.thread_id);
            } else {
                continue;
            }
        }
        let what = truncate_line(&printable(&event_view(&event).line), MAX_PROGRESS_CHARS);
        below.send_progress(format!("{thread}: {} {what}", event.body.reader_name()));
    }
}
