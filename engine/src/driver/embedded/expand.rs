//! Expansion of a user message, after the `input` hooks of a chat: if the message calls a skill or a prompt template,
//! the text of the called item replaces the call.

use std::sync::Arc;

use rye_compiler::expand::{ExpandedItem, Expansion, ExpansionProblem, expand};
use rye_compiler::item::Items;
use rye_compiler::plan::hex;
use rye_compiler::world::World;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::context::EngineContext;
use crate::error::DriveError;
use crate::event::{HookEvaluation, HookOutcome, HookVerdict, InputExpansion};
use crate::machine::HookRun;
use crate::store::{Disk, StoreError, sources};

/// The id of a failed expansion in the transcript's list of evaluated hooks. An expansion is not a hook, so this id
/// stands in place of a hook id.
const EXPANSION: &str = "expansion";

/// Expands the call of a skill or a prompt template in a message that the `input` hooks pass on. Returns the answer of
/// the hooks, with the expanded text in place of the original, and the expansions. If the call cannot be expanded (an
/// unknown skill, for example), or if the hooks or the expansion leave an empty message, the message is not sent. All
/// problems are added to `considered`, the list of evaluated hooks.
pub(super) async fn expand_message(
    engine: &EngineContext,
    run: &HookRun,
    answer: HookOutcome,
    considered: &mut Vec<HookEvaluation>,
) -> Result<(HookOutcome, Vec<InputExpansion>), DriveError> {
    let (answer, expansions) = expand_call(engine, run, answer, considered).await?;
    if !is_emptied(run, &answer) {
        return Ok((answer, expansions));
    }
    let cause = expansions.first().map_or_else(
        || "the hooks replaced the text with an empty one".to_owned(),
        |item| format!("the {} `{}` expands to an empty text", item.kind, item.item),
    );
    considered.push(problem(format!("{cause}: nothing was sent")));
    Ok((HookOutcome::Handled { reply: None }, Vec::new()))
}

/// Returns true if the answer replaces the message with a message that has neither text nor images.
fn is_emptied(run: &HookRun, answer: &HookOutcome) -> bool {
    let HookOutcome::Transformed { text, images } = answer else { return false };
    let has_images = || run.facts.get("images").and_then(Value::as_array).is_some_and(|images| !images.is_empty());
    text.trim().is_empty() && !images.as_ref().map_or_else(has_images, |images| !images.is_empty())
}

async fn expand_call(
    engine: &EngineContext,
    run: &HookRun,
    answer: HookOutcome,
    considered: &mut Vec<HookEvaluation>,
) -> Result<(HookOutcome, Vec<InputExpansion>), DriveError> {
    let (text, images) = if let HookOutcome::Transformed { text, images } = &answer {
        (text.clone(), images.clone())
    } else {
        (run.facts.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(), None)
    };
    let is_passed_on = matches!(answer, HookOutcome::Transformed { .. } | HookOutcome::None);
    if !is_passed_on || !text.starts_with('/') {
        return Ok((answer, Vec::new()));
    }
    if let Some(literal) = text.strip_prefix("//") {
        return Ok((HookOutcome::Transformed { text: format!("/{literal}"), images }, Vec::new()));
    }
    let typed = text.clone();
    let disk = Arc::clone(&engine.disk);
    let expanded = engine.with_world(move |world| {
        let expansion = expand(&Items::new(world), &typed);
        store_copies(&*disk, world, &expansion).map_err(|error| error.to_string())?;
        Ok(expansion)
    });
    let expanded = expanded.await?;
    let Expansion { text: sent, problems, expanded } = match expanded {
        Ok(expansion) => expansion,
        Err(error) => {
            considered.push(problem(error));
            return Ok((HookOutcome::Handled { reply: None }, Vec::new()));
        }
    };
    considered.extend(problems.iter().map(|one| problem(describe(one))));
    let answer = match sent {
        Some(sent) if sent == text => answer,
        Some(sent) => HookOutcome::Transformed { text: sent, images },
        None => HookOutcome::Handled { reply: None },
    };
    let expansions = expanded.into_iter().map(|item| InputExpansion {
        kind: item.kind.as_str().to_owned(),
        item: item.id.to_string(),
        sha256: item.sha256,
        start: item.range.start,
        end: item.range.end,
    });
    Ok((answer, expansions.collect()))
}

/// Stores copies of the expanded files. `rye threads prove --prompts` uses the copies to expand the message again.
fn store_copies(disk: &dyn Disk, world: &dyn World, expansion: &Expansion) -> Result<(), StoreError> {
    let is_new = |item: &&ExpandedItem| sources::read_copy(disk, item.kind, &item.sha256).is_none();
    for item in expansion.expanded.iter().filter(is_new) {
        let found = world.candidates(item.kind, &item.id).unwrap_or_default();
        if let Some(file) = found.iter().find(|file| hex(&Sha256::digest(&file.bytes)) == item.sha256) {
            sources::store_copy(disk, file)?;
        }
    }
    Ok(())
}

fn describe(problem: &ExpansionProblem) -> String {
    match problem {
        ExpansionProblem::Unknown { suggestion: Some(meant), .. } => {
            format!("{problem}: nothing was sent; did you mean `{meant}`?")
        }
        ExpansionProblem::Unknown { suggestion: None, .. } => {
            format!("{problem}: nothing was sent; `/help` lists the commands")
        }
        ExpansionProblem::Unreadable { .. } | ExpansionProblem::TooLong { .. } => {
            format!("{problem}: nothing was sent")
        }
        ExpansionProblem::MissingArgument { .. } => {
            format!("{problem}: an empty text was sent in place of the argument")
        }
        ExpansionProblem::UnusedArgument { .. } => problem.to_string(),
    }
}

fn problem(because: String) -> HookEvaluation {
    HookEvaluation {
        hook: EXPANSION.to_owned(),
        verdict: HookVerdict::Failed,
        operands: Map::new(),
        because: Some(because),
    }
}
