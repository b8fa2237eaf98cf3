//! The `scripted` wire: plays a script instead of calling a model (`engine.md` 6, and the scripts reference).
//!
//! No state is kept between calls, because the request selects the step. A thread that was killed and resumed in
//! another process therefore gets the same replies as an uninterrupted one.

mod placeholders;
mod recorded;
mod script;

use crate::exchange::SCRIPT_ERROR;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::time::sleep;

pub(crate) use placeholders::IdPlaceholders;
pub use recorded::RecordedRequest;
pub use script::{
    Expectation, Script, ScriptError, ScriptStep, ScriptedArguments, ScriptedCall, ScriptedErrorBody, ScriptedFailure,
    ScriptedFault, ScriptedReply, ScriptedUsage,
};

use super::Provider;
use super::settings::ProviderSettings;
use super::wire::length;
use crate::BoxFuture;
use crate::exchange::{CallError, CutStream, Delta, FailedStage, Reply, Request, StopReason, Usage};
use crate::message::{ContentBlock, ProviderMessage, SharedMessage, ToolCall};

/// Maximum size of a script, in bytes.
const MAX_SCRIPT_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// A provider that plays a script.
#[derive(Debug, Clone)]
pub struct Scripted {
    script: Script,
}

impl Scripted {
    pub fn new(script: Script) -> Self {
        Self { script }
    }

    /// Reads the script that `settings` name.
    ///
    /// # Errors
    /// [`FailedStage::Setup`]: the script is missing, unreadable or invalid.
    pub fn connect(settings: &ProviderSettings) -> Result<Self, CallError> {
        let Some(path) = &settings.script else {
            let id = &settings.id;
            return Err(script_error(format!("provider `{id}` has no script to play: name one with `--script FILE`")));
        };
        let shown = path.display();
        let script = read_script(path).map_err(|error| script_error(format!("the script `{shown}`: {error}")))?;
        Ok(Self::new(script))
    }
}

/// Reads a script. Only regular files of bounded size are accepted, because opening a pipe could block, and a device
/// has no end.
///
/// # Errors
/// The file cannot be read, or is not a valid script.
pub fn read_script(path: &Path) -> Result<Script, String> {
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(|error| error.to_string())?;
    if !file.metadata().is_ok_and(|file| file.is_file()) {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(MAX_SCRIPT_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_SCRIPT_FILE_BYTES {
        return Err(format!("the file is larger than {} MiB", MAX_SCRIPT_FILE_BYTES >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    Script::parse(&text).map_err(|error| error.to_string())
}

fn count_replies(replies: usize) -> String {
    if replies == 1 { "1 reply".to_owned() } else { format!("{replies} replies") }
}

impl Provider for Scripted {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        live: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move {
            let turn = reply_count(request);
            let directive = &request.cue.directive;
            let Some(step) = self.script.step_for(&request.cue, turn) else {
                let message = format!(
                    "the script is at its end: it has {} for a thread of `{directive}`, and this is attempt {} of request \
                     {} of the thread; add a step to the script",
                    count_replies(self.script.replies_for(&request.cue)),
                    request.cue.attempt + 1,
                    turn + 1
                );
                return Err(script_error(message));
            };
            match step {
                ScriptStep::Fault(fault) => {
                    check_expectations(&fault.expect, request, turn)?;
                    pause(fault.delay_ms).await;
                    play_text(&fault.after, fault.pace_ms, live).await;
                    Err(fault.error(request))
                }
                ScriptStep::Reply(reply) => {
                    check_expectations(&reply.expect, request, turn)?;
                    pause(reply.delay_ms).await;
                    Ok(play_reply(reply, request, turn, live).await)
                }
            }
        })
    }
}

/// Returns the number of replies in the thread before this request.
fn reply_count(request: &Request) -> u32 {
    let counted = || {
        let replies = turns(request).filter(|turn| matches!(turn, ProviderMessage::Assistant { .. })).count();
        u32::try_from(replies).unwrap_or(u32::MAX)
    };
    request.cue.turn.unwrap_or_else(counted)
}

fn check_expectations(expect: &Expectation, request: &Request, turn: u32) -> Result<(), CallError> {
    expect.check(request).map_err(|difference| {
        script_error(format!("turn {} of `{}` differs from its script: {difference}", turn + 1, request.cue.directive))
    })
}

async fn play_reply(step: &ScriptedReply, request: &Request, turn: u32, live: &(dyn Fn(Delta) + Send + Sync)) -> Reply {
    let mut content = Vec::new();
    if let Some(text) = &step.thinking {
        live(Delta::Thinking(text.clone()));
        content.push(ContentBlock::Thinking { text: text.as_str().into(), signature: None });
    }
    if !step.text.is_empty() {
        play_text(&step.text, step.pace_ms, live).await;
        content.push(ContentBlock::Text { text: step.text.as_str().into() });
    }
    let ids = IdPlaceholders::of(&request.cue);
    for (n, call) in step.tool_calls.iter().enumerate() {
        let call = tool_call(call, turn, n, &ids);
        live(Delta::ToolCallStarted { id: call.id.clone(), name: call.name.clone() });
        live(Delta::ToolCallInput { id: call.id.clone(), fragment: call.input.to_string() });
        content.push(ContentBlock::ToolCall(call));
    }
    let natural = if step.tool_calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    let usage = scripted_usage(&step.usage, request, &content);
    let received = || length(content.iter().map(|block| block_text(block).len()).sum());
    let streamed = || CutStream { sent: sent_bytes(request), received: received() };
    Reply {
        uncounted: (!usage.is_plausible_for(&content)).then(streamed),
        usage,
        stop: step.stop.clone().unwrap_or(natural),
        model: Some(request.model.clone()),
        unread: Vec::new(),
        content,
    }
}

/// Waits for a number of milliseconds. Returns at once for 0, because a timer waits for at least 1 ms.
async fn pause(ms: u64) {
    if ms > 0 {
        sleep(Duration::from_millis(ms)).await;
    }
}

/// Streams the text word by word, as a model would.
async fn play_text(text: &str, pace_ms: u64, live: &(dyn Fn(Delta) + Send + Sync)) {
    for word in text.split_inclusive(' ') {
        live(Delta::Text(word.to_owned()));
        pause(pace_ms).await;
    }
}

fn tool_call(call: &ScriptedCall, turn: u32, n: usize, ids: &IdPlaceholders) -> ToolCall {
    let id = call.id.clone().unwrap_or_else(|| format!("call_{}_{}", turn + 1, n + 1));
    match &call.arguments {
        ScriptedArguments::Input(input) => ToolCall { id, name: call.name.clone(), input: ids.fill_arguments(input) },
        ScriptedArguments::Raw(text) => ToolCall::parse(id, call.name.clone(), text),
    }
}

/// Returns the usage that the script declares. Undeclared input and output tokens are estimated at four characters per
/// token. Undeclared cache tokens are 0.
fn scripted_usage(reported: &ScriptedUsage, request: &Request, content: &[ContentBlock]) -> Usage {
    let tokens = |characters: usize| u64::try_from(characters.div_ceil(4)).unwrap_or(u64::MAX);
    let sent = || {
        request.system.chars().count()
            + turns(request).map(|turn| turn_text(turn).chars().count()).sum::<usize>()
            + request.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum::<usize>()
    };
    let answered = || content.iter().map(|block| block_text(block).chars().count()).sum();
    Usage {
        input: reported.input.unwrap_or_else(|| tokens(sent())),
        output: reported.output.unwrap_or_else(|| tokens(answered())),
        cache_read: reported.cache_read.unwrap_or(0),
        cache_write: reported.cache_write.unwrap_or(0),
    }
}

/// Returns the size in bytes of the texts and tools of a request. The size represents the bytes that a real server
/// would have received.
fn sent_bytes(request: &Request) -> u64 {
    let turns: usize = turns(request).map(|turn| turn_text(turn).len()).sum();
    let tools: usize = request.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    length(request.system.len() + turns + tools)
}

fn turns(request: &Request) -> impl DoubleEndedIterator<Item = ProviderMessage<'_>> {
    request.turns.iter().filter_map(SharedMessage::for_provider)
}

fn turn_text(turn: ProviderMessage<'_>) -> String {
    match turn {
        ProviderMessage::User { content } | ProviderMessage::Assistant { content } => {
            content.iter().map(block_text).collect::<Vec<_>>().join("\n\n")
        }
        ProviderMessage::ToolResult { content, .. } => content.to_owned(),
    }
}

fn block_text(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text { text } | ContentBlock::Thinking { text, .. } => text.to_string(),
        ContentBlock::ToolCall(call) => format!("{}{}", call.name, call.input),
        ContentBlock::Image(image) => format!("[{} {}]", image.media_type, image.sha256),
        ContentBlock::Other { .. } => String::new(),
    }
}

fn script_error(message: String) -> CallError {
    CallError { code: Some(SCRIPT_ERROR.to_owned()), ..CallError::new(FailedStage::Setup, message) }
}

#[cfg(test)]
mod tests;
