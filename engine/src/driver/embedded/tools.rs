//! Execution of authorized calls: tools, knowledge, fetches, signatures. All calls take the same steps: find the item,
//! run it, guard the result.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rye_compiler::command_files::CallValues;
use rye_compiler::hook::PlannedHook;
use rye_compiler::item::Items;
use rye_compiler::plan::hex;
use rye_compiler::primary::{FetchRequest, ItemType, Primary, SignRequest, format_capability};
use rye_compiler::semantics::hook_point;
#[cfg(feature = "mcp")]
use rye_compiler::tool_spec::ToolKind;
use rye_compiler::tool_spec::{ConfigMode, ToolSpec};
use rye_compiler::trust::{TrustRequirement, requirement_of_call, requirement_of_settings};
use rye_compiler::world::{ItemKind, RecordingWorld, Space, World};
use rye_grammar::ItemId;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::EmbeddedDriver;
use super::cut_work::{RunningCall, early_end};
use crate::control::RecordWaiter;
use crate::driver::Deadline;
use crate::error::DriveError;
use crate::event::Settled;
use crate::machine::Fact;
use crate::machine::gate::{Allowed, Dispatch, GatedCall, granted_access, local_hosts, write_bounds};
use crate::machine::signal::{CallAnswer, ToolFinished};
use crate::thread_count::blocking;
use crate::tool::builtin::{ChangeRecorder, PendingChange};
use crate::tool::cancellation::{CANCEL_GRACE, CancellationToken};
use crate::tool::environment::{declared_variables, provider_keys};
use crate::tool::guard::{fits_whole, guard_result};
#[cfg(feature = "mcp")]
use crate::tool::mcp;
use crate::tool::primary::{FetchSources, fetch, sign};
use crate::tool::process::{SharedOutput, TERMINATION_GRACE};
use crate::tool::registry::PreparedTool;
#[cfg(feature = "mcp")]
use crate::tool::registry::ToolFile;
use crate::tool::{CALL_EVENT, Invocation, ToolOutcome};
use crate::trust::TrustSnapshot;

/// Duration of a call after which the driver books the open settlements while the call continues.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

impl EmbeddedDriver {
    /// Runs one call of the reply.
    pub(super) async fn run_tool(
        &self,
        call: Allowed<Dispatch>,
        unsettled: &[Settled],
        halt: &CancellationToken,
        deadline: Option<Deadline>,
    ) -> Result<Fact, DriveError> {
        // Overspent money is booked first, so that no other thread can reserve it.
        if unsettled.iter().any(|settled| settled.overspent > 0) {
            self.commit_settlements(unsettled).await?;
        }
        let began = self.engine.clock.now();
        let index = call.index;
        let running = RunningCall::Reply(index);
        let written = self.cut_work.begin_call(running.clone(), began);
        let _shown = self.engine.running_outputs.add(written.clone());
        let mut dispatched = std::pin::pin!(self.dispatch(call, None, &written, halt, deadline));
        let outcome = tokio::select! {
            outcome = &mut dispatched => outcome,
            () = tokio::time::sleep(SETTLE_AFTER) => {
                self.commit_settlements(unsettled).await?;
                dispatched.await
            }
        }?;
        let answer = self.guarded(outcome).await?;
        self.cut_work.end_call(&running);
        let duration_ms = u64::try_from(self.engine.clock.now().saturating_sub(began)).unwrap_or(0);
        Ok(Fact::ToolFinished(Box::new(ToolFinished { index, answer, duration_ms })))
    }

    /// Runs a shell command that the user entered in a chat.
    pub(super) async fn run_command(
        &self,
        id: String,
        call: Allowed<Dispatch>,
        halt: &CancellationToken,
    ) -> Result<Fact, DriveError> {
        let began = self.engine.clock.now();
        let running = RunningCall::Command(id.clone());
        let written = self.cut_work.begin_call(running.clone(), began);
        let _shown = self.engine.running_outputs.add(written.clone());
        let outcome = self.dispatch(call, None, &written, halt, None).await?;
        let code = outcome.details.get("exit_code").and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
        let exit_code = code.unwrap_or(if outcome.is_error { -1 } else { 0 });
        let answer = Box::new(self.guarded(outcome).await?);
        self.cut_work.end_call(&running);
        let duration_ms = u64::try_from(self.engine.clock.now().saturating_sub(began)).unwrap_or(0);
        Ok(Fact::ShellRan { id, answer, exit_code, duration_ms })
    }

    /// Performs an authorized call until the call ends, its caller cancels it, `halt` is cancelled, or `deadline`
    /// passes. `hook` is the hook that makes the call; `None` for a call of the model or a command of the user.
    /// `written` receives the output of the program of the call.
    pub(super) async fn dispatch(
        &self,
        call: Allowed<Dispatch>,
        hook: Option<&PlannedHook>,
        written: &SharedOutput,
        halt: &CancellationToken,
        deadline: Option<Deadline>,
    ) -> Result<ToolOutcome, DriveError> {
        let mut dispatch = call.into_inner();
        if let Some(deadline) = deadline {
            if self.engine.clock.now() >= deadline.at {
                return Ok(ToolOutcome::refused("not started: the thread reached its duration limit"));
            }
            // The calls of a large group do not all start at once. Less time may remain now than when the group was
            // authorized.
            dispatch.remaining_ms = dispatch.remaining_ms.min(deadline.remaining_ms);
        }
        // Every tool receives the remaining duration as its timeout. `overdue` also ends a tool that ignores the
        // timeout.
        let left = Duration::from_millis(dispatch.remaining_ms);
        let overdue = async {
            match deadline {
                Some(deadline) => self.wait_for_deadline(Some(deadline)).await,
                None => tokio::time::sleep(left).await,
            }
            tokio::time::sleep(TERMINATION_GRACE + TERMINATION_GRACE).await;
        };
        let call_id = dispatch.call_id.clone();
        // Dropping the future of the call ends its programs.
        tokio::select! {
            biased;
            done = self.dispatch_call(dispatch, hook, written, halt) => done,
            () = self.call_stopped(&call_id), if hook.is_none() => {
                Ok(early_end(written, "stopped: the caller cancelled the call"))
            }
            () = overdue => Ok(early_end(written, "stopped: the thread reached its duration limit")),
        }
    }

    async fn dispatch_call(
        &self,
        dispatch: Dispatch,
        hook: Option<&PlannedHook>,
        written: &SharedOutput,
        halt: &CancellationToken,
    ) -> Result<ToolOutcome, DriveError> {
        match &dispatch.call {
            GatedCall::Tool { item_id, parameters } => {
                let (item_id, parameters) = (item_id.clone(), parameters.clone());
                self.tool(&dispatch, (item_id, parameters), hook, written, halt).await
            }
            GatedCall::Knowledge { item_id } => {
                let request = FetchRequest::Item {
                    item_type: ItemType::Knowledge,
                    item_id: item_id.clone(),
                    offset: 0,
                    limit: None,
                };
                self.fetch(request, hook).await
            }
            GatedCall::Fetch(request) => self.fetch(request.clone(), hook).await,
            GatedCall::Sign(request) => self.sign(request.clone()).await,
            GatedCall::Directive(_) => {
                Ok(ToolOutcome::error("this call names a directive, which can only run as a child thread"))
            }
        }
    }

    async fn tool(
        &self,
        dispatch: &Dispatch,
        (item_id, parameters): (ItemId, Value),
        hook: Option<&PlannedHook>,
        written: &SharedOutput,
        halt: &CancellationToken,
    ) -> Result<ToolOutcome, DriveError> {
        let tool = match self.prepare_allowed(&item_id, &parameters, hook, (&dispatch.write, &dispatch.net)).await? {
            Ok(tool) => tool,
            Err(reason) => return Ok(ToolOutcome::refused(reason)),
        };
        let capability = format_capability(Primary::Execute, ItemType::Tool, Some(&item_id));
        let narrowed = self.narrowed_launch();
        let invocation = Invocation {
            write_bounds: write_bounds(&narrowed.grants, &capability),
            local_hosts: local_hosts(&narrowed.grants, &capability),
            item_id,
            parameters,
            project_root: self.engine.project.clone(),
            thread_id: self.effective_thread_id(),
            event: hook.map_or(CALL_EVENT, |hook| hook_point::row_of(hook.event).name),
            call_id: dispatch.call_id.clone(),
            changes: Some(self.change_recorder()),
            persistent: Arc::clone(&self.persistent),
            timeout: Duration::from_millis(dispatch.remaining_ms.max(1)),
            write: dispatch.write.clone(),
            net: dispatch.net.clone(),
            may_write_item: dispatch.patterns.clone(),
            halt: halt.clone(),
            written: written.clone(),
            thread_count: self.engine.thread_count.clone(),
        };
        let mut halt = halt.clone();
        let termination = if tool.stops_itself() { TERMINATION_GRACE + TERMINATION_GRACE } else { Duration::ZERO };
        let overdue = async {
            halt.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE + termination).await;
        };
        // A tool that panics is an error of the tool, not of the thread. Dropping this future aborts the task.
        let mut task = tokio::task::JoinSet::new();
        task.spawn(async move { tool.run(invocation).await });
        let joined = tokio::select! {
            joined = task.join_next() => joined,
            () = overdue => return Ok(early_end(written, "stopped: the thread was cancelled")),
        };
        Ok(match joined {
            Some(Ok(outcome)) => outcome,
            Some(Err(error)) => ToolOutcome::error(format!("the tool panicked: {error}")),
            None => ToolOutcome::error("the tool stopped unexpectedly"),
        })
    }

    /// Returns the function that records a file change. The function stores the contents of the file before and after
    /// the change, and then waits until the thread has written the event of the change.
    fn change_recorder(&self) -> ChangeRecorder {
        let (engine, id) = (Arc::clone(&self.engine), self.id.clone());
        Arc::new(move |change: PendingChange| {
            let (engine, id) = (Arc::clone(&engine), id.clone());
            Box::pin(async move {
                let objects = Arc::clone(&engine.objects);
                let PendingChange { event, contents } = change;
                let stored =
                    tokio::task::spawn_blocking(move || contents.iter().try_for_each(|one| objects.put(one).map(drop)));
                let stored = stored.await.map_err(|error| error.to_string())?;
                stored
                    .map_err(|error| format!("nothing was written, because the change cannot be recorded: {error}"))?;
                let (waiter, recorded) = RecordWaiter::new();
                let stopped = || "nothing was written: the thread was stopped".to_owned();
                if !engine.record_change(&id, event, waiter) {
                    return Err(stopped());
                }
                recorded.await.map_err(|_| stopped())
            })
        })
    }

    /// Returns the id of the thread for which tools act: the parent if this thread only runs one tool call of the
    /// parent, else this thread.
    fn effective_thread_id(&self) -> String {
        let caller = self.launch.call.as_ref().and(self.launch.parent.as_ref());
        caller.map_or_else(|| self.id.to_string(), |parent| parent.thread_id.clone())
    }

    /// Checks that this thread can run the tool with these parameters. The thread's grants for `capability` must cover
    /// the folders and hosts that the tool needs. If the tool cannot run, returns the reason.
    pub(crate) async fn check_ready(
        &self,
        item_id: &ItemId,
        parameters: &Value,
        capability: &str,
    ) -> Result<Result<(), String>, DriveError> {
        let (write, net) = granted_access(&self.narrowed_launch().grants, capability);
        Ok(self.prepare_allowed(item_id, parameters, None, (&write, &net)).await?.map(drop))
    }

    /// Returns the tool of a call, if the call may run. `write` and `net` are the folders and hosts that the grants
    /// allow. The inner error is the reason why the call is refused: for example, the parameters do not match the
    /// schema of the tool, or the tool needs a folder that is not granted.
    async fn prepare_allowed(
        &self,
        item_id: &ItemId,
        parameters: &Value,
        hook: Option<&PlannedHook>,
        (write, net): (&[String], &[String]),
    ) -> Result<Result<Arc<PreparedTool>, String>, DriveError> {
        Ok(self.prepared(item_id, parameters, hook).await?.and_then(|tool| {
            tool.check(parameters).map_err(|error| error.to_string())?;
            missing_need(&tool.spec, write, net).map_or(Ok(tool), Err)
        }))
    }

    /// Returns the tool, ready for a call with `parameters`. The inner error is the reason why the call cannot be made.
    /// The tool must be unchanged since the plan was compiled. Every project file that the call executes must currently
    /// be trusted, including the files that the tool's command names with these parameters.
    async fn prepared(
        &self,
        id: &ItemId,
        parameters: &Value,
        hook: Option<&PlannedHook>,
    ) -> Result<Result<Arc<PreparedTool>, String>, DriveError> {
        if let Some(tool) = self.known_tool(id) {
            return Ok(Ok(tool));
        }
        let (plan, wanted, hook) = (Arc::clone(&self.plan), id.clone(), hook.cloned());
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        let engine = Arc::clone(&self.engine);
        let found = self
            .engine
            .with_world(move |world| {
                check_unchanged(world, &plan.manifest, ItemKind::Tool, &wanted)?;
                let world = RecordingWorld::new(world);
                let items = Items::new(&world);
                let tool = items.tool(&wanted);
                if let Some(tool) = &tool {
                    check_no_provider_keys(&items, &tool.spec)?;
                }
                let error_message = || {
                    let first = items.diagnostics().iter().next().map(rye_compiler::diagnostics::Diagnostic::message);
                    first.unwrap_or_else(|| format!("unknown tool `{wanted}`"))
                };
                let tool = tool.ok_or_else(error_message)?;
                if tool.file.space == Space::User {
                    engine.admit_user_space(&plan, hook.as_ref()).map_err(|why| format!("`{wanted}`: {why}"))?;
                }
                if let Some(source) = &tool.spec.config {
                    check_unchanged(&world, &plan.manifest, ItemKind::Config, &source.id)?;
                }
                let sha256 = world.sha256(ItemKind::Tool, &wanted, tool.file.space).unwrap_or_default();
                #[cfg(feature = "mcp")]
                let server = match &tool.spec.kind {
                    ToolKind::Mcp { server, .. } => {
                        mcp::config::read_servers(&items).map_err(|error| error.message)?.remove(server)
                    }
                    ToolKind::Builtin { .. }
                    | ToolKind::Command { .. }
                    | ToolKind::Script { .. }
                    | ToolKind::Http(_) => None,
                };
                let environment = declared_variables(&tool.spec.environment);
                let call = CallValues { parameters: &parameters, environment: &environment };
                let mut executes: Vec<TrustRequirement> =
                    requirement_of_call(&tool, sha256, &items.sources(), Some(call)).into_iter().collect();
                executes.extend(requirement_of_settings(&world, &tool));
                #[cfg(feature = "mcp")]
                executes.extend(server.as_ref().and_then(mcp::config::trust_requirement));
                let changes = |now: TrustSnapshot<'_>| Ok(untrusted_changes(&now, &now.missing(&executes)?));
                match engine.trust.snapshot().and_then(changes) {
                    Ok(None) => {}
                    Ok(Some(changes)) => {
                        return Err(format!(
                            "permission denied: the user has not trusted the current version of the project tool \
                         `{wanted}`, or of a file of the project that it names or gets its settings from{changes}; the user can review it with `rye trust --list` and \
                         trust it with `rye trust`"
                        ));
                    }
                    Err(error) => return Err(error.to_string()),
                }
                let config = settings(&items, &tool.spec);
                let text = items.sources().get(tool.file.source).map(|s| Arc::clone(&s.text)).unwrap_or_default();
                Ok(FoundTool {
                    spec: Arc::clone(&tool.spec),
                    space: tool.file.space,
                    path: Arc::clone(&tool.file.path),
                    text,
                    config,
                    // Access to a tool of the user space depends on the calling thread or hook, so it is checked before
                    // every call.
                    rechecks_trust: tool.file.space == Space::User
                        || executes.iter().any(|one| !one.programs.is_empty()),
                    #[cfg(feature = "mcp")]
                    server,
                })
            })
            .await?;
        let prepared = found.and_then(|found| {
            let file = self.engine.tools.file(&self.engine.project, found.space, found.path, found.text);
            #[cfg(feature = "mcp")]
            let file = ToolFile { server: found.server, ..file };
            let prepared = self.engine.tools.prepare(&found.spec, &file).map_err(|e| e.to_string())?;
            let tool = Arc::new(prepared.with_config(found.config));
            if !found.rechecks_trust {
                self.keep_tool(id, &tool);
            }
            Ok(tool)
        });
        Ok(prepared)
    }

    pub(super) async fn fetch(
        &self,
        request: FetchRequest,
        hook: Option<&PlannedHook>,
    ) -> Result<ToolOutcome, DriveError> {
        let objects = Arc::clone(&self.engine.objects);
        let (engine, plan, hook) = (Arc::clone(&self.engine), Arc::clone(&self.plan), hook.cloned());
        let answer = self.engine.with_world(move |world| {
            // The gate has checked that the object is a result of this thread.
            let own: BTreeSet<String> = match &request {
                FetchRequest::Object { sha256, .. } => BTreeSet::from([sha256.clone()]),
                FetchRequest::Item { .. } | FetchRequest::Skill { .. } | FetchRequest::Query { .. } => BTreeSet::new(),
            };
            let user_space = || engine.admit_user_space(&plan, hook.as_ref());
            let library = FetchSources { world, objects: &*objects, own_objects: &own, user_space: &user_space };
            Ok(fetch(&library, &request))
        });
        Ok(answer.await?.unwrap_or_else(ToolOutcome::error))
    }

    async fn sign(&self, request: SignRequest) -> Result<ToolOutcome, DriveError> {
        let Some(keys) = self.engine.keys.clone() else {
            return Ok(ToolOutcome::error("no user space, so there is no key to sign with"));
        };
        let project = self.engine.project.clone();
        let now = Timestamp::from_millisecond(self.engine.clock.now()).unwrap_or(Timestamp::UNIX_EPOCH);
        let signed = tokio::task::spawn_blocking(move || match keys.load_or_generate() {
            Ok(identity) => sign(&project, &identity, now, &request),
            Err(error) => ToolOutcome::error(error.to_string()),
        });
        Ok(signed.await?)
    }

    /// Returns a result in the form that enters the conversation, shortened by the guard.
    pub(crate) async fn guarded(&self, outcome: ToolOutcome) -> Result<CallAnswer, DriveError> {
        let was_refused = outcome.was_refused;
        let most = self.plan.settings.values().max_result_bytes;
        let objects = Arc::clone(&self.engine.objects);
        // A small result is guarded inline; a result that may have to be stored is guarded on a blocking thread.
        let guarded = if fits_whole(&outcome, most) {
            guard_result(&outcome, most, &*objects)?
        } else {
            blocking(move || Ok(guard_result(&outcome, most, &*objects)?)).await?
        };
        Ok(CallAnswer {
            content: guarded.content,
            is_error: guarded.is_error,
            details: guarded.details,
            bytes: guarded.bytes,
            object: guarded.object,
            was_refused,
        })
    }
}

/// A tool that was found in a space: its declaration, and the file that contains it.
struct FoundTool {
    spec: Arc<ToolSpec>,
    space: Space,
    path: Arc<str>,
    text: Arc<str>,
    config: Option<Value>,
    /// True if trust is checked before every call, because the tool names files of the project or belongs to the user
    /// space.
    rechecks_trust: bool,
    #[cfg(feature = "mcp")]
    server: Option<mcp::McpServer>,
}

/// Returns the settings that a tool requests (`CONFIG_RESOLVE`): an empty mapping if no space has them, `None` if the
/// tool requests none.
fn settings(items: &Items<'_>, spec: &ToolSpec) -> Option<Value> {
    let source = spec.config.as_ref()?;
    let node = match source.mode {
        ConfigMode::DeepMerge => items.config(&source.id).map(|node| node.to_value()),
        ConfigMode::FirstMatch => items.highest_config(&source.id).map(|node| node.to_value()),
    };
    Some(node.unwrap_or_else(|| Value::Object(serde_json::Map::new())))
}

/// Checks that a tool does not request a variable that holds a provider's key.
fn check_no_provider_keys(items: &Items<'_>, spec: &ToolSpec) -> Result<(), String> {
    if spec.environment.is_empty() {
        return Ok(());
    }
    let keys = provider_keys(items);
    match spec.environment.iter().find(|name| keys.contains(*name)) {
        Some(key) => Err(format!("`{key}` holds a provider's key, which tools cannot receive")),
        None => Ok(()),
    }
}

/// Checks that an item is unchanged since the plan was made. An item that the compilation did not read passes.
pub(crate) fn check_unchanged(
    world: &dyn World,
    manifest: &[rye_compiler::plan::ManifestEntry],
    kind: ItemKind,
    id: &ItemId,
) -> Result<(), String> {
    let mut planned = manifest.iter().filter(|read| read.kind == kind && read.id == id.as_str());
    let Some(read) = planned.find(|read| read.sha256.is_some()) else { return Ok(()) };
    let found = world.candidates(kind, id).map_err(|error| error.to_string())?;
    let now = found.first().map(|located| (Some(located.space), Some(hex(&Sha256::digest(&located.bytes)))));
    if now == Some((read.space, read.sha256.clone())) {
        return Ok(());
    }
    Err(format!("`{id}` changed after this thread's plan was compiled"))
}

/// Returns the error for a host or folder that the tool needs and that no grant covers; `None` if the grants cover all
/// needs.
fn missing_need(spec: &ToolSpec, write: &[String], net: &[String]) -> Option<String> {
    use crate::machine::gate::is_folder_inside;
    use rye_compiler::semantics::needs::is_host_inside;
    let unmet = |needs: &[String], granted: &[String], inside: fn(&str, &str) -> bool| {
        needs.iter().find(|need| !granted.iter().any(|outer| inside(need, outer))).cloned()
    };
    let folder = unmet(&spec.needs.write, write, is_folder_inside).map(|folder| ("write", folder));
    let host = || unmet(&spec.needs.net, net, is_host_inside).map(|host| ("net", host));
    let (need, what) = folder.or_else(host)?;
    Some(format!("permission denied: the tool needs {need}=\"{what}\", which is not granted"))
}

/// Maximum number of changed files that the error of a refused call lists.
const NAMED_CHANGES: usize = 3;

/// Returns a text that lists the files that changed since the user trusted the requirements `missing`. The text is
/// empty if the trust record does not show which files changed. `None` if `missing` is empty.
fn untrusted_changes(now: &TrustSnapshot<'_>, missing: &[&TrustRequirement]) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let changed: BTreeSet<String> = missing.iter().flat_map(|one| now.changed_files(one)).collect();
    if changed.is_empty() {
        return Some(String::new());
    }
    let named: Vec<String> =
        changed.iter().take(NAMED_CHANGES).map(|path| format!("`{}`", path.escape_debug())).collect();
    let others = match changed.len() - named.len() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    Some(format!(" (changed since then: {}{others})", named.join(", ")))
}
