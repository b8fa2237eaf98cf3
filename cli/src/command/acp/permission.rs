//! Permission requests: the questions of a session to its client, and the answers.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest, SessionId,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields,
};
use rye::{Answer, Question};
use rye_compiler::item::Items;
use rye_compiler::plan::ApprovalOrigin;
use rye_compiler::primary::{ItemType, Primary, format_capability};
use rye_engine::engine::ApprovalRequest;
use rye_engine::live_state::LiveState;
use rye_engine::machine::effect::CallToApprove;
use rye_grammar::ItemId;
use serde_json::Value;

use crate::command::run::ask::{ThreadGrant, format_raise, is_approved_in_project};
use crate::present::truncate_line;
use crate::workspace::Spaces;

const ONCE: &str = "once";
const PROMPT: &str = "prompt";
const SESSION: &str = "session";
const PROJECT: &str = "project";
const NO: &str = "no";
/// Maximum length of the tool and its arguments in a title, in characters.
const MAX_TITLE_CHARS: usize = 200;

/// Capabilities that the user allowed for the rest of a prompt or of a session.
#[derive(Debug, Default)]
pub struct SessionGrants {
    prompt: Mutex<BTreeSet<String>>,
    session: Mutex<BTreeSet<String>>,
}

fn lock(capabilities: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    capabilities.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SessionGrants {
    /// Removes the approvals that the user gave for the current prompt only. Called when the prompt ends.
    pub fn end_prompt(&self) {
        lock(&self.prompt).clear();
    }

    /// Returns true if an earlier approval answers a question: the user has allowed the capability for the prompt, for
    /// the session or for the project, or has allowed the commands of the call for the project.
    pub fn allows(&self, question: &Question, spaces: &Spaces) -> bool {
        let Some(grant) = grant_of(question) else { return false };
        let is_given = |given: &Mutex<BTreeSet<String>>| lock(given).contains(&grant.capability);
        is_given(&self.prompt)
            || is_given(&self.session)
            || is_approved_in_project(&spaces.trust(), &grant.capability, input_of(question).as_ref())
    }

    /// Converts the answer of the client, and records an approval that lasts longer than the call. If the approval
    /// cannot be recorded, also returns an error text.
    pub fn answer(
        &self,
        outcome: &RequestPermissionOutcome,
        question: &Question,
        spaces: &Spaces,
    ) -> (Answer, Option<String>) {
        let RequestPermissionOutcome::Selected(selected) = outcome else { return (Answer::Refuse, None) };
        let capability = grant_of(question).map(|grant| grant.capability);
        match (&*selected.option_id.0, capability) {
            (ONCE, _) => (Answer::Approve, None),
            (PROMPT, Some(capability)) => {
                lock(&self.prompt).insert(capability);
                (Answer::Approve, None)
            }
            (SESSION, Some(capability)) => {
                lock(&self.session).insert(capability);
                (Answer::Approve, None)
            }
            (PROJECT, Some(capability)) => {
                let problem = spaces.trust().record_capability(&capability).err();
                (Answer::Approve, problem.map(|error| format!("approval not saved: {error}")))
            }
            _ => (Answer::Refuse, None),
        }
    }
}

fn grant_of(question: &Question) -> Option<ThreadGrant> {
    ThreadGrant::parse_request(&question.thread, &question.what).filter(|_| !question.is_limit)
}

/// Returns the input of the call that the user is asked to allow; `None` if the question is about a limit.
fn input_of(question: &Question) -> Option<Value> {
    serde_json::from_str(question.what.split_once(" with ")?.1).ok()
}

/// Returns the title of a permission request: the tool, its arguments and the sandbox of the call.
fn request_title(question: &Question, sandbox: Option<&str>) -> String {
    let named = grant_of(question).zip(input_of(question));
    let title = named.map(|(grant, input)| {
        let tool = grant.capability.trim_start_matches("rye.execute.").trim_start_matches("tool.").replace('.', "/");
        let only =
            input.as_object().filter(|arguments| arguments.len() == 1).and_then(|arguments| arguments.values().next());
        let text = only.and_then(Value::as_str).map_or_else(|| input.to_string(), str::to_owned);
        format!("{tool}: {text}")
    });
    let title = truncate_line(title.as_deref().unwrap_or(&question.what), MAX_TITLE_CHARS);
    sandbox.map_or_else(|| title.clone(), |sandbox| format!("{title} (sandbox: {sandbox})"))
}

/// Describes the sandbox of the call that needs the approval. `question` is a question of the session's own thread, not
/// of a child. Returns `None` for a question about a limit.
pub fn describe_sandbox(question: &Question, live: &LiveState, spaces: &Spaces) -> Option<String> {
    let capability = grant_of(question)?.capability;
    let tools = live.plan.palette.iter().filter_map(|tool| tool.item_id.as_ref());
    let is_called = |id: &&ItemId| format_capability(Primary::Execute, ItemType::Tool, Some(id)) == capability;
    let tool = tools.into_iter().find(is_called).cloned();
    let call = CallToApprove { capability, tool, parameters: Value::Null, input: Value::Null, number: 1, count: 1 };
    let grants = &live.state.launch.as_ref()?.grants;
    let (origin, what) = (ApprovalOrigin::Call, question.what.as_str());
    let thread = &question.thread;
    let request = ApprovalRequest { thread, origin, what, call: Some(&call), raise: None, plan: &live.plan, grants };
    Some(request.sandbox(&Items::new(&spaces.open().ok()?))?.to_string())
}

/// Creates the permission request for the client. `sandbox` describes the sandbox of the call. `call` is the id of the
/// tool call that the question is about. If `call` is `None`, the request uses an id made from the thread's id. At a
/// limit that cannot be raised, the request has no option to continue, because the prompt would reach the same limit
/// again.
pub fn permission_request(
    session: &SessionId,
    question: &Question,
    call: Option<String>,
    sandbox: Option<&str>,
) -> RequestPermissionRequest {
    let call = call.unwrap_or_else(|| format!("question-{}", question.thread));
    let fields = ToolCallUpdateFields::new().title(request_title(question, sandbox)).status(ToolCallStatus::Pending);
    let option = |id: &'static str, name: &str, kind| PermissionOption::new(id, name.to_owned(), kind);
    let options = if question.is_limit {
        let raise = question.raise.as_ref().map(format_raise);
        let raise = raise.map(|raise| option(ONCE, &raise, PermissionOptionKind::AllowOnce));
        raise.into_iter().chain([option(NO, "Stop", PermissionOptionKind::RejectOnce)]).collect()
    } else {
        vec![
            option(ONCE, "Allow once", PermissionOptionKind::AllowOnce),
            option(PROMPT, "Allow this tool in this prompt", PermissionOptionKind::AllowAlways),
            option(SESSION, "Allow this tool in this session", PermissionOptionKind::AllowAlways),
            option(PROJECT, "Allow this tool in this project", PermissionOptionKind::AllowAlways),
            option(NO, "Deny", PermissionOptionKind::RejectOnce),
        ]
    };
    RequestPermissionRequest::new(session.clone(), ToolCallUpdate::new(call, fields), options)
}
