//! The library of `rye`: open a project, check it, compile a directive to a plan, run the plan with live events, and
//! answer approval requests. The command `rye` is built on it.
//!
//! # A tour
//!
//! A [`Project`] is a folder that contains `.ai/`. [`Project::check`] returns the diagnostics of the project, and
//! [`Project::plan`] compiles one directive:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directives = folder.path().join(".ai/directives");
//! # std::fs::create_dir_all(&directives)?;
//! # std::fs::write(directives.join("greet.md"), concat!(
//! #     "```xml\n<directive name=\"greet\" version=\"1.0.0\">\n  <metadata><description>Greet the world.</description>\n",
//! #     "  <model provider=\"scripted\" tier=\"fast\"/><limits turns=\"2\" spend=\"0.05\"/></metadata>\n</directive>\n```\n\nSay hello.\n"))?;
//! # let root = folder.path();
//! use rye::{CompileRequest, ItemId, Project};
//!
//! let project = Project::open(root)?.without_user_space();
//! let report = project.check()?;
//! assert_eq!(report.errors(), 0);
//!
//! let request = CompileRequest::new(ItemId::parse("greet")?).with_inputs(Default::default());
//! let compilation = project.plan(&request)?;
//! assert_eq!(compilation.plan.limits.turns, 2);
//! println!("{}", project.render_plan(&compilation)?);
//! # Ok(())
//! # }
//! ```
//!
//! An [`Engine`] runs plans. [`Engine::open`] starts a [`Session`]; [`Session::subscribe`] yields its events, the pieces
//! of streaming replies, and the questions that [`Session::answer`] answers:
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let directives = folder.path().join(".ai/directives");
//! # std::fs::create_dir_all(&directives)?;
//! # std::fs::write(directives.join("greet.md"), concat!(
//! #     "```xml\n<directive name=\"greet\" version=\"1.0.0\">\n  <metadata><description>Greet the world.</description>\n",
//! #     "  <model provider=\"scripted\" tier=\"fast\"/><limits turns=\"2\" spend=\"0.05\"/></metadata>\n</directive>\n```\n\nSay hello.\n"))?;
//! # let root = folder.path();
//! # let script = root.join("script.yaml");
//! # std::fs::write(&script, "steps:\n  - text: Hello, world.\n")?;
//! use rye::{Answer, Approvals, CompileRequest, EngineBuilder, ItemId, LiveEvent, Project, SessionRequest};
//!
//! let runtime = tokio::runtime::Runtime::new()?;
//! let result = runtime.block_on(async {
//!     let project = Project::open(root)?.without_user_space();
//!     let request = CompileRequest::new(ItemId::parse("greet")?).with_inputs(Default::default());
//!     let compilation = project.plan(&request)?;
//!     let engine = EngineBuilder::new(&project).approvals(Approvals::Ask).script(&script)?.open()?;
//!     let mut session = engine.open(SessionRequest::start(compilation)).await?;
//!     let mut events = session.subscribe();
//!     while let Some(event) = events.next().await {
//!         match event {
//!             LiveEvent::Question(question) => {
//!                 session.answer(question.id, Answer::Refuse);
//!             }
//!             LiveEvent::Event { event, .. } => println!("{}", event.body.reader_name()),
//!             LiveEvent::Delta { .. } => {}
//!         }
//!     }
//!     Ok::<_, rye::Error>(session.join().await)
//! })?;
//! assert_eq!(result.result.as_deref(), Some("Hello, world."));
//! # Ok(())
//! # }
//! ```
//!
//! # The second layer
//!
//! `rye_compiler` (text to plan: [`compiler`]) and `rye_engine` (plan to events: [`engine`]) hold everything else: the
//! types of a plan, reports on plans, the store, threads. Their interfaces change between minor versions.
#![deny(missing_docs)]

mod engine_builder;
mod error;
mod project;
mod session;

pub use engine_builder::{Approvals, Engine, EngineBuilder, ScriptedProviders};
pub use error::Error;
pub use project::Project;
pub use session::{Answer, LiveEvent, LiveEvents, Question, QuestionId, Receipt, Session, SessionRequest};

pub use rye_compiler as compiler;
pub use rye_compiler::compile::{Compilation, CompileRequest};
pub use rye_compiler::diagnostics::{Diagnostic, Severity};
pub use rye_compiler::validate::CheckReport;
pub use rye_engine as engine;
pub use rye_engine::BoxFuture;
pub use rye_engine::engine::{ApprovalHandler, ApprovalRequest};
pub use rye_engine::event::{
    Approval, ControlMessage, Delivery, Event, EventBody, ImpliedRaise, InputSource, QueuedMessage, UserInput,
};
pub use rye_engine::exchange::Delta;
pub use rye_engine::preview::{CacheLoss, ChangedPart, CompactionPreview, ContextPart, Preview, RequestPartChange};
pub use rye_engine::thread::RunResult;
pub use rye_engine::thread_id::ThreadId;
pub use rye_engine::tool::{Invocation, Tool, ToolOutcome};
pub use rye_grammar::ItemId;
