//! Performs the JSON requests of a session, and returns the responses.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rye_compiler::commands::BUILT_IN_COMMANDS;
use rye_compiler::compile::Compilation;
use rye_compiler::hook::{HookPoint, PlannedHook};
use rye_compiler::model::SCRIPTED_WIRE;
use rye_compiler::plan::Plan;
use rye_compiler::semantics::money::Nanos;
use rye_engine::control::ControlSender;
use rye_engine::engine::Engine;
use rye_engine::error::{DriveError, EngineError};
use rye_engine::event::{ChatMode, ControlMessage, Delivery, InputSource, PromptBounds, UserInput};
use rye_engine::image::{ValidatedImage, check_accepted};
use rye_engine::live_state::LiveState;
use rye_engine::machine::raised_limit;
use rye_engine::machine::state::OpenApprovalRequest;
use rye_engine::preview::{context_parts, preview, preview_request};
use rye_engine::store::StoreError;
use rye_engine::thread::Status;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::pending_approval;
use serde_json::{Value, json};

use super::bounds::{
    budget_warning, check_bounds, check_fit, check_patterns, image_warning, read_dollars, read_raised_limit,
};
use super::commands::{command_name, list_message_commands};
use super::help::{help, unloaded_commands};
use super::json::{ChatRequest, ChatResponse, ChatVerb};
use super::leaving::{BackgroundChoice, CHILDREN_HINT, LeftChildren, children_question};
use super::next_session::{NextSession, NextStart};
use super::replan::{PlanRequest, SentMode, SentPlan, chosen_model, compare_modes, compare_with_session, recompile};
use crate::command::run::images::read_images;
use crate::present::dollars::raise_in_dollars;
use crate::thread_reader::ThreadReader;
use crate::workspace::Spaces;

/// The error of a session that accepts no more messages.
pub(super) const ENDED: &str = "the session has ended";

/// The error of a message that was not recorded.
const NOT_RECORDED: &str = "the message was not recorded: the session has ended, or its record cannot be written";

/// The handler of the requests that a front end sends to a session.
pub struct RequestHandler {
    pub control: ControlSender,
    pub engine: Engine,
    pub spaces: Spaces,
    /// Receives the session that the user chooses to start after this one; `None` if the front end has only one
    /// session.
    pub next: Option<NextSession>,
    /// Receives the user's choice to continue in the background; `None` if the front end has no terminal.
    pub background: Option<BackgroundChoice>,
    /// The approval requests that the client has answered: the thread and the number of each request.
    pub answered: Mutex<BTreeSet<(ThreadId, u64)>>,
    pub sent_plan: SentPlan,
    pub sent_mode: SentMode,
}

impl RequestHandler {
    /// Performs a request and returns its response.
    pub async fn answer(&self, request: ChatRequest) -> ChatResponse {
        let (id, command) = (request.id, request.verb.name());
        match self.perform(request.verb).await {
            Ok(data) => ChatResponse::accepted(id, command, data),
            Err(error) => ChatResponse::refused(id, Some(command), error),
        }
    }

    async fn perform(&self, verb: ChatVerb) -> Result<Option<Value>, String> {
        match verb {
            ChatVerb::Prompt { message, images, delivery, spend, with } => {
                let images = read_images(&images).map_err(|error| error.to_string())?;
                let bounds = read_bounds(spend.as_ref(), with)?;
                let input = UserInput { bounds, ..UserInput::text(message) };
                let input = self.with_images(input, images).await?;
                self.submit(input, delivery.map_or(Delivery::Prompt, Delivery::from)).await
            }
            ChatVerb::Steer { message } => self.submit(UserInput::text(message), Delivery::Steer).await,
            ChatVerb::FollowUp { message } => self.submit(UserInput::text(message), Delivery::FollowUp).await,
            ChatVerb::NextTurn { message } => self.submit(UserInput::text(message), Delivery::NextTurn).await,
            ChatVerb::Interrupt {} => self.send(ControlMessage::Interrupt),
            ChatVerb::Retract { input } => self.retract(input),
            ChatVerb::ClearQueue {} => self.clear_queue(),
            ChatVerb::Answer { question, approve, thread } => self.approve(question, approve, thread).await,
            ChatVerb::Raise { limit, value } => self.raise(limit, &value).await,
            ChatVerb::State {} => Ok(Some(state(&self.control.started_state().await))),
            ChatVerb::Messages {} => {
                let live = self.control.started_state().await;
                let messages: Vec<Value> = live
                    .state
                    .conversation
                    .messages
                    .iter()
                    .filter_map(|message| serde_json::to_value(&**message).ok())
                    .collect();
                Ok(Some(Value::Array(messages)))
            }
            ChatVerb::Context { part: None, .. } => {
                Ok(serde_json::to_value(context_parts(&self.control.started_state().await)).ok())
            }
            ChatVerb::Context { part: Some(part), confirm } => self.change_context(part, confirm).await,
            ChatVerb::Preview { message, spend, with } => {
                let bounds = read_bounds(spend.as_ref(), with)?;
                self.preview(UserInput { bounds, ..UserInput::text(message) }).await
            }
            ChatVerb::Plan {} => self.plan_report().await.map(Some),
            ChatVerb::Why { part } => self.explain(part).await.map(Some),
            ChatVerb::Cost {} => self.cost().await.map(Some),
            ChatVerb::Commands {} => self.commands(),
            ChatVerb::Model { model, confirm } => self.replan(&PlanRequest::Model(model), confirm).await,
            ChatVerb::Mode { mode, confirm } => self.set_mode(mode.into(), confirm).await,
            ChatVerb::Budget { spend, confirm } => {
                let spend = read_dollars("spend", &spend)?;
                self.replan(&PlanRequest::Budget(spend), confirm).await
            }
            ChatVerb::Reload { confirm } => {
                let live = self.control.started_state().await;
                let model = chosen_model(&self.spaces, &**self.engine.disk(), &live);
                self.replan(&PlanRequest::Reload(model), confirm).await
            }
            ChatVerb::Fork { prompt, thread } => self.fork(prompt, thread).await,
            ChatVerb::Rewind { prompt, files } => self.rewind(prompt, files).await,
            ChatVerb::Retry {} => self.retry().await,
            ChatVerb::Compact { focus, preview } => self.compact(focus, preview).await,
            ChatVerb::Bash { command, excluded } => self.send(ControlMessage::Shell { command, excluded }),
            ChatVerb::Name { name } => self.send(ControlMessage::Name { name }),
            ChatVerb::Tree {} => self.tree().await,
            ChatVerb::New { children } => self.new_session(children).await,
            ChatVerb::Resume { thread: Some(thread), children } => self.resume(&thread, children).await,
            ChatVerb::Resume { thread: None, .. } => self.closed_sessions(),
            ChatVerb::Close { children: LeftChildren::Detach } if self.background.is_none() => {
                Err("only a terminal can leave children in the background".to_owned())
            }
            ChatVerb::Close { children } => self.close(children).await,
        }
    }

    /// Returns the asynchronous children that still run. A child that a prompt waits for is not included, because the
    /// child ends with the prompt.
    pub fn running_children(&self) -> Vec<ThreadId> {
        let Some(live) = self.control.live_state() else { return Vec::new() };
        let children = live.state.living_children().filter(|(_, child)| child.detached);
        children.filter_map(|(_, child)| ThreadId::parse(child.thread_id.as_deref()?).ok()).collect()
    }

    /// Withdraws the queued messages. The data of the response has their number.
    fn clear_queue(&self) -> Result<Option<Value>, String> {
        let queued = self.control.live_state().map_or(0, |live| live.state.queued_messages().count());
        let id = self.control.send_with_id(ControlMessage::Retract { input: None }).ok_or(ENDED)?;
        Ok(Some(json!({"message": id, "queued": queued})))
    }

    async fn close(&self, children: LeftChildren) -> Result<Option<Value>, String> {
        let sent = self.send(ControlMessage::Close);
        match (children, &self.background) {
            (LeftChildren::Detach, Some(background)) => background.choose(),
            (LeftChildren::Detach | LeftChildren::Wait, _) => {}
            (LeftChildren::Cancel, _) => self.cancel_children().await?,
        }
        sent
    }

    /// Performs a request that opens another session. `children` is the treatment of children that still run.
    pub async fn switch(&self, verb: ChatVerb, children: LeftChildren) -> ChatResponse {
        self.answer(ChatRequest { id: Value::Null, verb: verb.with_children(children) }).await
    }

    async fn cancel_children(&self) -> Result<(), String> {
        for child in self.running_children() {
            // The child is killed, because a cancellation would wait for the end of the model call.
            let stopped = self.engine.send_to_chain(&child, ControlMessage::Kill).await;
            // If the child has already ended, the result is `false`, which is no error.
            stopped.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    pub(super) fn send(&self, message: ControlMessage) -> Result<Option<Value>, String> {
        let id = self.control.send_with_id(message).ok_or(ENDED)?;
        Ok(Some(json!({"message": id})))
    }

    /// Checks a message before it is submitted: its content, and its bounds against those of the session.
    ///
    /// # Errors
    /// Returns a message if the text of `input` is empty, or if its bounds are invalid.
    pub fn check_message(&self, input: &UserInput) -> Result<(), String> {
        if input.text.trim().is_empty() && input.images.is_empty() {
            return Err("the message is empty: type a text or attach an image".to_owned());
        }
        self.check_input(input)
    }

    /// Checks that the text of a prompt fits into the context window, that the bounds of the prompt lie within the
    /// bounds of the session, and that the capability patterns match items.
    ///
    /// # Errors
    /// Returns the reason why the prompt cannot be sent.
    pub fn check_input(&self, input: &UserInput) -> Result<(), String> {
        let Some(live) = self.control.live_state() else { return Ok(()) };
        check_fit(&live, &input.text)?;
        check_bounds(&live, &input.bounds)?;
        check_patterns(&self.spaces, &input.bounds)
    }

    /// Adds images to a message.
    ///
    /// # Errors
    /// Returns the reason why the session's model does not accept the images, or why they cannot be stored.
    pub async fn with_images(&self, input: UserInput, images: Vec<ValidatedImage>) -> Result<UserInput, String> {
        if images.is_empty() {
            return Ok(input);
        }
        let images = self.engine.store_images(images).await.map_err(|error| error.to_string())?;
        let live = self.control.started_state().await;
        check_accepted(live.state.model(&live.plan), &images).map_err(|refused| refused.to_string())?;
        Ok(UserInput { images, ..input })
    }

    /// Reads images and submits a message with them. The field `command` of the response is `prompt`.
    pub async fn submit_with_images(&self, input: UserInput, images: &[PathBuf], delivery: Delivery) -> ChatResponse {
        let send = async {
            let input = self.read_images(input, images).await?;
            let id = self.control.submit(input, delivery).ok_or(ENDED)?;
            Ok(json!({"input": id}))
        };
        ChatResponse::of_prompt(send.await)
    }

    /// Adds the images in these files to a message.
    ///
    /// # Errors
    /// Returns the reason why a file cannot be read, or why the session's model does not accept the images.
    pub async fn read_images(&self, input: UserInput, images: &[PathBuf]) -> Result<UserInput, String> {
        let images = read_images(images).map_err(|error| error.to_string())?;
        self.with_images(input, images).await
    }

    /// Submits a line of a file as a prompt. `before` is the id of the message before it. If hooks can change the
    /// request of the prompt, waits until that message has been handled, and adds a warning about lost cached tokens to
    /// the data of the response. The data also contains notes about the images that the line names.
    ///
    /// # Errors
    /// Returns the reason why the bounds are invalid, or why the session accepts no message.
    pub async fn submit_line(&self, input: UserInput, before: Option<String>) -> Result<Value, String> {
        let live = self.control.started_state().await;
        self.check_input(&input)?;
        let (input, notes) = self.attach_named_images(input).await?;
        let changes = |hook: &PlannedHook| matches!(hook.event, HookPoint::BeforeAgentStart | HookPoint::Context);
        let mut warning = None;
        if input.bounds.with.is_some() || live.plan.hooks.iter().any(|hook| hook.is_live() && changes(hook)) {
            if let Some(before) = before {
                self.control.settled(&before).await;
            }
            warning = self.cache_warning_expanded(&input).await;
        } else if before.is_none() {
            // A command before the line may have changed the plan.
            warning = self.cache_warning_expanded(&input).await;
        }
        let id = self.control.submit(input, Delivery::Prompt).ok_or(ENDED)?;
        Ok(json!({"input": id, "cache_loss": warning.map(|warning| warning.to_json()), "notes": notes}))
    }

    /// Submits a message, and waits until the message is recorded on disk, because a client relies on a successful
    /// response.
    async fn submit(&self, input: UserInput, delivery: Delivery) -> Result<Option<Value>, String> {
        self.check_message(&input)?;
        let input = UserInput { source: InputSource::Rpc, ..input };
        let warning = if delivery == Delivery::NextTurn { None } else { self.cache_warning_expanded(&input).await };
        let id = self.control.submit_recorded(input, delivery).await.ok_or(NOT_RECORDED)?;
        let mut data = json!({"input": id});
        if let (Some(warning), Value::Object(fields)) = (warning, &mut data) {
            fields.insert("cache_loss".to_owned(), warning.to_json());
        }
        Ok(Some(data))
    }

    async fn approve(&self, question: u64, yes: bool, thread: Option<String>) -> Result<Option<Value>, String> {
        let message = ControlMessage::Approve { yes, question: Some(question), message: None, raises: true };
        let own = self.control.started_state().await;
        let named = thread.as_deref().or(own.thread_id()).unwrap_or_default();
        let asking = ThreadId::parse(named).map_err(|error| error.reason)?;
        let open = self.check_open(&asking, question).await?;
        let raise = open.raise.filter(|_| yes).map(|raise| json!({"raise": raise_in_dollars(&raise)}));
        if thread.is_some() {
            let is_sent = self.engine.send_to_chain(&asking, message).await.map_err(|error| error.to_string())?;
            return if is_sent {
                Ok(raise)
            } else {
                Err(format!("the thread `{asking}` does not run in this session"))
            };
        }
        self.send(message).map(|_| raise)
    }

    /// Checks that a thread waits for an answer to this request, and records that the client has answered the request.
    /// Returns the request. Fails if the client has answered it before.
    async fn check_open(&self, thread: &ThreadId, question: u64) -> Result<OpenApprovalRequest, String> {
        let (threads, asking) = (self.engine.threads(), thread.clone());
        let read = move || -> Result<Option<OpenApprovalRequest>, StoreError> {
            let last = threads.chain(&asking)?.pop().unwrap_or(asking);
            Ok(pending_approval(&threads.transcript(&last)?))
        };
        let read = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
        let open = read.map_err(|error| format!("no approval request of `{thread}` can be read: {error}"))?;
        let Some(open) = open else {
            return Err(format!("`{thread}` has no open request {question}: it was already answered or never existed"));
        };
        if open.seq != question {
            return Err(format!("request {question} of `{thread}` is not open; the open request is {}", open.seq));
        }
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.insert((thread.clone(), question)) {
            return Ok(open);
        }
        Err(format!("request {question} of `{thread}` is already answered"))
    }

    fn retract(&self, input: String) -> Result<Option<Value>, String> {
        let live = self.control.live_state();
        let waits = |live: &LiveState| {
            let held = live.state.chat.iter().flat_map(|chat| &chat.held);
            live.state.queued_messages().chain(held).any(|message| message.id == input)
        };
        let is_received = |live: &LiveState| live.state.mailbox.received.contains(&input);
        // A message that the thread has not received yet is withdrawn as soon as the thread receives it.
        let is_on_its_way = self.control.has_sent(&input) && !live.as_ref().is_some_and(is_received);
        if is_on_its_way || live.as_ref().is_some_and(waits) {
            return self.send(ControlMessage::Retract { input: Some(input) });
        }
        Err(format!("no queued message has the id `{input}`"))
    }

    async fn raise(&self, limit: String, value: &Value) -> Result<Option<Value>, String> {
        let value = read_raised_limit(&limit, value)?;
        let live = self.control.started_state().await;
        if raised_limit(&live.state, &limit, value).is_none() {
            return Err(format!(
                "this value does not raise `{limit}`: give a total above the current limit of the prompt and within \
                 the limits of the session; a `spend` that the prompt itself sets cannot be raised"
            ));
        }
        let id = self.control.send_recorded(ControlMessage::Raise { limit, value }).await.ok_or(NOT_RECORDED)?;
        Ok(Some(json!({"message": id})))
    }

    async fn preview(&self, input: UserInput) -> Result<Option<Value>, String> {
        let live = self.control.started_state().await;
        check_bounds(&live, &input.bounds)?;
        check_patterns(&self.spaces, &input.bounds)?;
        if let Some(command) = describe_command(&live.plan, &input.text) {
            return Ok(Some(json!({"command": command})));
        }
        let expansion = self.engine.expand(&input.text).await.map_err(|error| error.to_string())?;
        let problems: Vec<String> = expansion.problems.iter().map(ToString::to_string).collect();
        let Some(text) = expansion.text else { return Err(problems.join("; ")) };
        let input = UserInput { text, ..input };
        let shown = preview(&live, &input);
        let request = preview_request(&live, &input).map(|request| {
            let turns: Vec<Value> =
                request.turns.iter().filter_map(|turn| serde_json::to_value(turn.for_provider()).ok()).collect();
            json!({"system": request.system, "messages": turns})
        });
        let mut data = serde_json::to_value(&shown).map_err(|error| error.to_string())?;
        if let Value::Object(fields) = &mut data {
            for amount in ["expected", "worst_case"] {
                if let Some(nanos) = fields.get(amount).and_then(Value::as_u64) {
                    fields.insert(amount.to_owned(), dollars(nanos));
                }
            }
            let model = live.state.model(&live.plan);
            fields.insert("unpriced".into(), (model.prices.is_none() && model.wire != SCRIPTED_WIRE).into());
            fields.insert("text".into(), input.text.into());
            fields.insert("problems".into(), problems.into());
            fields.insert("request".into(), request.unwrap_or_default());
        }
        Ok(Some(data))
    }

    /// Returns the state of a session in which no prompt runs or waits.
    ///
    /// # Errors
    /// Returns a message for the user if a prompt runs or waits.
    pub(super) async fn idle_state(&self) -> Result<LiveState, String> {
        let live = self.control.started_state().await;
        let is_idle = live.state.chat.as_ref().is_none_or(|chat| chat.current.is_none() && chat.queue.is_empty());
        if is_idle { Ok(live) } else { Err("a prompt runs: interrupt it first".to_owned()) }
    }

    /// Closes the session and records `next` as the session that follows. Returns the data of the response. `children`
    /// is the treatment of asynchronous children, and must be set if such children still run. Fails while a prompt
    /// runs.
    async fn switch_session(&self, next: NextStart, children: Option<LeftChildren>) -> Result<Option<Value>, String> {
        let Some(chosen) = &self.next else { return Err("this interface cannot open another session".to_owned()) };
        self.idle_state().await?;
        let running = self.running_children().len();
        match children {
            None if running > 0 => return Err(children_question(running, CHILDREN_HINT)),
            // The process must run the next session, so it cannot continue in the background.
            Some(LeftChildren::Detach) => {
                return Err(
                    "`children` must be `wait` or `cancel`: children cannot stay in the background here".to_owned()
                );
            }
            None | Some(LeftChildren::Wait | LeftChildren::Cancel) => {}
        }
        chosen.choose(next);
        self.close(children.unwrap_or_default()).await
    }

    async fn new_session(&self, children: Option<LeftChildren>) -> Result<Option<Value>, String> {
        let live = self.control.started_state().await;
        let compilation = recompile(&self.spaces, &live.plan, &PlanRequest::Same)?;
        // Only a mode that allows less is kept: `auto` needs a confirmation in each session.
        let mode = live.state.chat.as_ref().map(|chat| chat.mode).filter(|mode| *mode == ChatMode::ReadOnly);
        self.switch_session(NextStart::New(Box::new(compilation), mode.unwrap_or_default()), children).await
    }

    async fn resume(&self, reference: &str, children: Option<LeftChildren>) -> Result<Option<Value>, String> {
        let reader = ThreadReader::open(&self.spaces.project).map_err(|error| error.to_string())?;
        let row = reader.last_of_chain(reference).map_err(|error| error.to_string())?.row;
        let live = self.control.started_state().await;
        if live.thread_id() == Some(row.id.as_str()) {
            return Err(format!(
                "`{reference}` is a thread of this session, which continues in `{}`; /tree lists the branches, and \
                 `/fork THREAD` goes back to the end of one",
                row.id
            ));
        }
        if row.status != Status::Idle {
            return Err(format!(
                "`{}` cannot be opened: its status is `{}`, and only a closed session (`idle`) can be opened; \
                 `/resume` lists the closed sessions",
                row.id,
                row.status.as_str()
            ));
        }
        self.switch_session(NextStart::Resume(row.id), children).await
    }

    /// Compiles the directive of the session again with the changes in `request`, continues the session with the new
    /// plan, and returns the data of the response. Without `confirm`, refuses a plan that allows more than the current
    /// one; the error lists the changes.
    async fn replan(&self, request: &PlanRequest, confirm: bool) -> Result<Option<Value>, String> {
        let mut sent = self.sent_plan.lock().await;
        let live = self.control.started_state().await;
        let (plan, plan_id) = self.plan_to_change(sent.as_ref(), &live);
        let compilation = recompile(&self.spaces, &plan, request)?;
        if compilation.plan_id == plan_id {
            return Ok(Some(json!({"model": live.plan.model.id, "changes": ["the plan is the same"]})));
        }
        let changes = compare_with_session(&self.spaces, &**self.engine.disk(), &live, &compilation);
        if changes.widens && !confirm {
            return Err(changes.refusal("the new plan allows more than the current one"));
        }
        let warning = match request {
            PlanRequest::Budget(_) => budget_warning(&live, &compilation.plan),
            PlanRequest::Model(_) => {
                self.require_key(&live, &compilation.plan)?;
                image_warning(&live, &compilation.plan)
            }
            PlanRequest::Reload(_) | PlanRequest::Omit(_) | PlanRequest::Same => None,
        };
        let id = self.send_plan(&compilation, &mut sent).await?;
        let effect = request.describe_effect(&compilation.plan);
        let model = &compilation.plan.model.id;
        Ok(Some(json!({
            "message": id,
            "model": model,
            "effect": effect,
            "changes": changes.lines,
            "confirmed": changes.widens,
            "warning": warning,
        })))
    }

    /// Sets the mode of the next prompts, and returns the data of the response. Without `confirm`, refuses a mode that
    /// allows more than the current one; the error lists the changes.
    async fn set_mode(&self, mode: ChatMode, confirm: bool) -> Result<Option<Value>, String> {
        let mut sent = self.sent_mode.lock().await;
        let live = self.control.started_state().await;
        let active = live.state.chat.as_ref().map(|chat| chat.mode).unwrap_or_default();
        // A mode that was sent during a prompt applies to the next prompts, so the request is compared with that mode.
        let waiting = sent.as_ref().filter(|(message, _)| !self.control.has_settled(message));
        let current = waiting.map_or(active, |(_, mode)| *mode);
        if mode == current {
            return Ok(Some(json!({"mode": mode, "changes": [format!("the mode is `{}`", mode.as_str())]})));
        }
        let effect = format!("mode {} instead of {}", mode.as_str(), current.as_str());
        let is_confirmed = mode > current;
        let mut lines = vec![effect.clone()];
        if mode > current {
            let changes = compare_modes(&self.spaces, &**self.engine.disk(), &live, (current, mode))?;
            if !confirm {
                return Err(changes.refusal(&format!("the mode `{}` allows more than the current one", mode.as_str())));
            }
            lines.extend(changes.lines);
        }
        let id = self.control.send_with_id(ControlMessage::Mode { mode }).ok_or(ENDED)?;
        *sent = Some((id.clone(), mode));
        let effect = is_confirmed.then_some(effect);
        Ok(Some(json!({
            "message": id,
            "mode": mode,
            "effect": effect,
            "changes": lines,
            "confirmed": is_confirmed,
        })))
    }

    pub(super) async fn store(&self, compilation: &Compilation) -> Result<String, String> {
        self.engine.store_plan(compilation).await.map_err(|error| {
            let EngineError::Drive(DriveError::Untrusted { directive, list }) = error else { return error.to_string() };
            let list: Vec<String> = list.iter().map(|one| format!("\n  {one}")).collect();
            format!(
                "`{directive}` has requirements that you have not trusted, or that changed since:{}\nrun `rye trust` in \
                 another terminal, then repeat the command",
                list.concat()
            )
        })
    }

    /// Returns the help of a topic, or an overview without a topic. If the project cannot be read, returns the reason.
    pub fn help(&self, topic: Option<&str>) -> String {
        self.spaces.open().map_or_else(
            |error| error.to_string(),
            |world| help(&world, topic) + &unloaded_commands(&world, self.control.live_state().as_ref()),
        )
    }

    fn commands(&self) -> Result<Option<Value>, String> {
        let world = self.spaces.open().map_err(|error| error.to_string())?;
        serde_json::to_value(list_message_commands(&world)).map(Some).map_err(|error| error.to_string())
    }
}

fn read_bounds(spend: Option<&Value>, with: Option<Vec<String>>) -> Result<PromptBounds, String> {
    let spend = spend.map(|spend| read_dollars("spend", spend)).transpose()?;
    Ok(PromptBounds { spend: spend.map(Nanos::to_u64), with })
}

/// Describes the effect of a text that calls a command; `None` for any other text.
fn describe_command(plan: &Plan, text: &str) -> Option<String> {
    let name = command_name(text)?;
    if BUILT_IN_COMMANDS.contains(&name) {
        return Some(format!("/{name} is a command of the session: its text is not sent to the model"));
    }
    let is_command = |hook: &&PlannedHook| hook.event == HookPoint::Command && hook.is_live() && hook.id == name;
    let item = plan.hooks.iter().find(is_command)?.action.item()?.1.to_owned();
    Some(format!(
        "/{name} runs the tool `{item}` without a model call; if the tool answers with a prompt, rye sends it"
    ))
}

fn dollars(nanos: u64) -> Value {
    Nanos::from_u64(nanos).to_json()
}

fn state(live: &LiveState) -> Value {
    let state = &live.state;
    let queue: Vec<&rye_engine::event::QueuedMessage> = state.queued_messages().collect();
    let chat = state.chat.as_ref();
    let question = state.question.as_ref().map(
        |open| json!({"question": open.seq, "what": open.what, "raise": open.raise.as_ref().map(raise_in_dollars)}),
    );
    json!({
        "thread_id": state.launch.as_ref().map(|launch| launch.thread_id.clone()),
        "directive": live.plan.directive.as_str(),
        "model": state.model(&live.plan).id,
        "mode": chat.map(|chat| chat.mode),
        "idle": state.is_idle(),
        "prompts": chat.map(|chat| chat.prompts),
        "queue": queue,
        "held": chat.map(|chat| &chat.held),
        "question": question,
        "turns": state.cost.turns,
        "context_window": state.model(&live.plan).context_window,
    })
}
