//! The summary of permissions that is printed before a resumed thread runs. The summary lists the recorded grants of
//! the thread and the sandboxes of its tools. The grants come from the verified transcript, so later changes of project
//! files do not affect them.

use rye_compiler::approvals::{HeadlessPolicy, required_approvals};
use rye_compiler::item::Items;
use rye_compiler::plan::Grant;
use rye_compiler::sandbox::{SandboxKind, plan_sandboxes};
use rye_compiler::world::World;
use rye_engine::engine::ParentThread;
use rye_engine::engine::{Engine, EngineError};
use rye_engine::error::DriveError;
use rye_engine::thread_id::ThreadId;

use super::ask::headless_warning;
use crate::CommandError;
use crate::present::{format_count, truncate_line};
use crate::report::printable;
use crate::typed_input::ask_yes_no;

/// Maximum number of grants, and of tool sandboxes, to print.
const MAX_LISTED: usize = 12;
/// Maximum length in characters of a grant or sandbox line, because a transcript may come from an untrusted source.
const MAX_LINE_CHARS: usize = 300;

/// Verifies the transcript of a thread before it is resumed, and returns the recorded plan and grants; `None` if
/// nothing was recorded. If no key of the user signed the transcript, asks at the terminal whether to resume anyway, or
/// fails if `can_ask` is false.
pub async fn verify_transcript(
    engine: &Engine,
    thread: &ThreadId,
    can_ask: bool,
) -> Result<Option<ParentThread>, CommandError> {
    match engine.inspect(thread).await {
        Err(EngineError::Drive(error @ DriveError::Unverified { .. })) if can_ask => {
            if !ask_yes_no(&printable(&format!("{error}\nResume anyway? [y/N] ")))? {
                return Err(error.into());
            }
            engine.accept_unverified();
            Ok(engine.inspect(thread).await?)
        }
        inspected => Ok(inspected?),
    }
}

/// Formats the permissions of a thread that is resumed: the recorded grants, and the sandboxes in which its tools run
/// now. `unattended` is the headless policy if there is no terminal. If `unattended` is set, the text also warns about
/// calls that need approval.
pub fn format_permissions(recorded: &ParentThread, world: &dyn World, unattended: Option<HeadlessPolicy>) -> String {
    let (thread, plan) = (&recorded.id, recorded.plan());
    let sets = recorded.grants().iter().map(|set| set.iter().map(format_granted).collect::<Vec<_>>());
    let sets: Vec<String> =
        sets.map(|set| if set.is_empty() { "nothing".to_owned() } else { join_limited(&set, ", ") }).collect();
    let may =
        if sets.is_empty() { "nothing".to_owned() } else { sets.join("; bounded by the grants of an ancestor: ") };
    let mut lines = vec![format!("`{thread}` resumes with its recorded grants: {may}")];
    let items = Items::new(world);
    let sandboxes: Vec<String> = plan_sandboxes(&items, plan)
        .iter()
        .filter(|sandbox| matches!(sandbox.kind, SandboxKind::Process | SandboxKind::Requests | SandboxKind::None))
        .map(|sandbox| format!("  {}", truncate_line(&format!("{}: {sandbox}", sandbox.name), MAX_LINE_CHARS)))
        .collect();
    if !sandboxes.is_empty() {
        lines.push(join_limited(&sandboxes, "\n"));
    }
    lines.extend(unattended.and_then(|unattended| headless_warning(&required_approvals(&items, plan), unattended)));
    lines.join("\n")
}

/// Formats the notice for a session that its user opens again. The notice only counts the grants, because the session
/// asks for each risky call and `/plan` lists the grants.
pub fn format_session(recorded: &ParentThread) -> String {
    let grants = recorded.grants().first().map_or(0, Vec::len);
    let grants = format_count(grants as u64, "grant");
    format!("`{}` continues with the same permissions as before ({grants}); /plan lists them", recorded.id)
}

fn format_granted(grant: &Grant) -> String {
    let needs = grant.needs();
    let text = if needs.is_empty() { format!("`{}`", grant.pattern) } else { format!("`{}` ({needs})", grant.pattern) };
    truncate_line(&text, MAX_LINE_CHARS)
}

fn join_limited(all: &[String], between: &str) -> String {
    let shown = all.iter().take(MAX_LISTED).map(String::as_str).collect::<Vec<_>>().join(between);
    match all.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown}{between}and {more} more"),
    }
}
