//! Checks that the messages of a thread follow from its plan and its inputs: the opening (system prompt and first
//! message), and the messages of each prompt. The events before a message are folded, the functions of the machine
//! derive the message again, and the two texts are compared byte by byte. Writes nothing and starts nothing.

use std::collections::{BTreeMap, VecDeque};

use rye_compiler::hook::HookPoint;
use rye_compiler::plan::Plan;

use crate::event::{
    AcceptedInput, CommandRan, Event, EventBody, HookOutcome, HookPointRun, HookVerdict, MessageSource,
};
use crate::machine::{Fact, Signal, ThreadState, absorb, apply, opening_events, undelivered_prompt};
use crate::message::{ContentBlock, Message, text_of};

/// The result of comparing a recorded opening (system prompt and first message) with the opening of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpeningCheck {
    /// The openings are equal. `bytes` is the total size of the system prompt and the first message.
    AsPlanned { bytes: usize },
    /// The openings differ. `what` is the part that differs (`system prompt`, `contributors` or `message`), and `at` is
    /// the index of the first byte in which the two versions of this part differ.
    Differs { what: &'static str, at: usize },
    /// The transcript does not contain the whole opening (system prompt and first message) yet.
    NotYet,
}

/// Compares the opening in a transcript with the opening of a plan.
pub fn check_opening(plan: &Plan, events: &[Event]) -> OpeningCheck {
    let mut state = ThreadState::new();
    let opens = |event: &Event| matches!(event.body, EventBody::SystemPrompt(_));
    let Some(at) = events.iter().position(opens) else { return OpeningCheck::NotYet };
    for event in events.iter().take(at) {
        apply(&mut state, event);
    }
    let planned = opening_events(plan, &state);
    let recorded: Vec<&EventBody> = events.iter().skip(at).take(planned.len()).map(|event| &event.body).collect();
    if recorded.len() < planned.len() {
        return OpeningCheck::NotYet;
    }
    let mut bytes = 0;
    for (planned, recorded) in planned.iter().zip(recorded) {
        let (what, a, b) = match (planned, recorded) {
            (EventBody::SystemPrompt(a), EventBody::SystemPrompt(b)) if a.layers == b.layers => {
                ("system prompt", a.text.to_string(), b.text.to_string())
            }
            (EventBody::CognitionIn(a), EventBody::CognitionIn(b)) if a.source == b.source => {
                ("message", comparable_text(&a.message), comparable_text(&b.message))
            }
            (a, b) if a == b => continue,
            _ => return OpeningCheck::Differs { what: "contributors", at: 0 },
        };
        if let Some(at) = first_difference(&a, &b) {
            return OpeningCheck::Differs { what, at };
        }
        bytes += a.len();
    }
    OpeningCheck::AsPlanned { bytes }
}

/// The result of deriving the messages of one prompt again and comparing them with the recorded messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptCheck {
    /// Number of the prompt in the session, from 1.
    pub prompt: u64,
    /// Total size in bytes of the recorded messages that equal the derived messages.
    pub bytes: usize,
    pub differences: Vec<PromptDifference>,
}

/// A recorded text that differs from the text that was derived again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptDifference {
    /// Number of the event that holds the text.
    pub seq: u64,
    pub what: String,
    /// Offset of the first byte in which the recorded and the derived text differ.
    pub at: usize,
}

/// A function that expands the call of a skill or a prompt template again. The arguments are the recorded message and
/// its text before the expansion. The result is the text after the expansion.
///
/// # Errors
/// Returns the reason if the item's file at the time of the message is not available.
pub type ExpandAgain<'a> = dyn Fn(&AcceptedInput, &str) -> Result<String, String> + 'a;

/// A checker of the prompts of a session, which processes one thread after another. The messages of each prompt are
/// derived again from the recorded input, and compared with the recorded messages. One checker serves all threads of
/// the session, because a message can be accepted in one thread and sent to the model in the next thread.
#[derive(Default)]
pub struct PromptChecker {
    /// The accepted messages that were not sent to the model yet, by message id. The value lists the differences
    /// between the recorded intake of the message and the intake that was derived again.
    accepted: BTreeMap<String, Vec<PromptDifference>>,
}

impl PromptChecker {
    /// Checks each prompt in a transcript: derives the messages of the prompt again, and compares them with the
    /// recorded messages. The text of an accepted message is derived from the typed text, the recorded answers of the
    /// hooks and the expansions. A message that was sent to the model is derived from the accepted texts and the
    /// recorded answers of the hooks.
    pub fn check(&mut self, plan: &Plan, events: &[Event], expand: &ExpandAgain<'_>) -> Vec<PromptCheck> {
        let mut state = ThreadState::new();
        let mut checks: Vec<PromptCheck> = Vec::new();
        let mut derived: VecDeque<EventBody> = VecDeque::new();
        let mut intake = Intake::default();
        for event in events {
            let body = &event.body;
            if let EventBody::PromptStarted(started) = body {
                checks.push(PromptCheck { prompt: started.prompt, bytes: 0, differences: Vec::new() });
            }
            intake.read(body);
            if let EventBody::UserInput(input) = body {
                let differences = std::mem::take(&mut intake).check(event.seq, input, expand);
                self.accepted.insert(input.id.clone(), differences);
            }
            let source = if let EventBody::CognitionIn(input) = body { Some(input.source) } else { None };
            if source.is_some() || matches!(body, EventBody::SystemPrompt(_) | EventBody::ContextInjected(_)) {
                if derived.is_empty() {
                    derived = absorb(plan, &state, Signal { at: event.ts, fact: Fact::Tick }).into();
                }
                let delivered = source.and_then(|source| delivered_id(&state, source));
                if let Some(check) = checks.last_mut() {
                    let accepted = delivered.and_then(|id| self.accepted.remove(&id));
                    check.differences.extend(accepted.into_iter().flatten());
                    check.add(event.seq, derived.pop_front().as_ref(), body);
                }
            } else {
                derived.clear();
            }
            apply(&mut state, event);
        }
        checks
    }
}

impl PromptCheck {
    fn add(&mut self, seq: u64, derived: Option<&EventBody>, recorded: &EventBody) {
        let (what, derived, recorded) = match (derived, recorded) {
            (Some(EventBody::SystemPrompt(a)), EventBody::SystemPrompt(b)) => {
                ("the system prompt", a.text.to_string(), b.text.to_string())
            }
            (Some(EventBody::CognitionIn(a)), EventBody::CognitionIn(b)) if a.source == b.source => {
                ("the message", comparable_text(&a.message), comparable_text(&b.message))
            }
            (Some(a), b) if a == b => return,
            (_, _) => {
                let what = "a message that no step of the plan sends here".to_owned();
                self.differences.push(PromptDifference { seq, what, at: 0 });
                return;
            }
        };
        match first_difference(&derived, &recorded) {
            None => self.bytes += recorded.len(),
            Some(at) => self.differences.push(PromptDifference { seq, what: what.to_owned(), at }),
        }
    }
}

/// The recorded intake of the next user message: the run of the `input` hooks, and the run of the command that the user
/// typed. A field is `None` if its event was not recorded.
#[derive(Debug, Default)]
struct Intake {
    hooks: Option<HookPointRun>,
    command: Option<CommandRan>,
}

impl Intake {
    /// Stores the event if it is a run of the `input` hooks or the run of a command that the settings declare. A later
    /// event of the same kind replaces the earlier one.
    fn read(&mut self, body: &EventBody) {
        if let EventBody::HookPoint(run) = body
            && run.point == HookPoint::Input
        {
            self.hooks = Some((**run).clone());
        } else if let EventBody::CommandRan(ran) = body {
            self.command = Some((**ran).clone());
        }
    }

    /// Derives the result of the `input` hooks and the accepted text of a message again from the typed text. Returns
    /// the differences from the recorded result and text.
    fn check(self, seq: u64, input: &AcceptedInput, expand: &ExpandAgain<'_>) -> Vec<PromptDifference> {
        let hooks = self.hooks.filter(|run| run.subject.as_deref() == Some(&input.id));
        let command = self.command.filter(|ran| ran.id == input.id);
        let (mut handled, mut reply, mut new_images) = (false, None, None);
        let text = match (&command, hooks.as_ref().map(|run| &run.answer)) {
            (Some(ran), _) => ran.answer.clone(),
            (None, Some(HookOutcome::Transformed { text, images })) => {
                new_images = images.as_ref();
                text.clone()
            }
            (None, Some(HookOutcome::Handled { reply: text })) => {
                (handled, reply) = (true, text.as_ref());
                input.raw.clone()
            }
            (None, _) => input.raw.clone(),
        };
        let mut found = Vec::new();
        if new_images.is_some_and(|images| *images != input.images) {
            found.push(PromptDifference { seq, what: "the images of the `input` hooks".to_owned(), at: 0 });
        }
        if handled != input.handled || reply != input.reply.as_ref() {
            found.push(PromptDifference { seq, what: "the answer of the `input` hooks".to_owned(), at: 0 });
        }
        let mut compare = |derived: &str, what: &str| {
            let at = first_difference(derived, &input.text);
            found.extend(at.map(|at| PromptDifference { seq, what: what.to_owned(), at }));
        };
        compare(&text, "the accepted text");
        let is_transformed =
            hooks.is_some_and(|run| run.considered.iter().any(|one| one.verdict == HookVerdict::Fired));
        if !input.expansions.is_empty() && !is_transformed {
            match expand(input, &input.raw) {
                Ok(expanded) => compare(&expanded, "the text of the skill or prompt template"),
                Err(reason) => found.push(PromptDifference { seq, what: reason, at: 0 }),
            }
        }
        found
    }
}

/// Returns the id of the waiting message of this source that is delivered next. `None` if no message of the source
/// waits, or if messages of the source have no id.
fn delivered_id(state: &ThreadState, source: MessageSource) -> Option<String> {
    let waiting = match source {
        MessageSource::Prompt | MessageSource::Continuation => undelivered_prompt(state),
        MessageSource::Steer => state.mailbox.steering.front(),
        MessageSource::FollowUp => state.mailbox.follow_ups.front(),
        MessageSource::NextTurn => state.chat.as_ref().and_then(|chat| chat.next_turn.front()),
        MessageSource::Nudge | MessageSource::ContinueReply | MessageSource::Hook => None,
    };
    waiting.map(|message| message.id.clone())
}

fn first_difference(one: &str, other: &str) -> Option<usize> {
    (one != other).then(|| one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count())
}

/// Returns the text to compare. For a user message, the text consists of the references to its images and its text. For
/// any other message, the text is its JSON.
fn comparable_text(message: &Message) -> String {
    if let Message::User { content } = message {
        let shown = content.iter().filter_map(|block| match block {
            ContentBlock::Image(image) => Some(format!("[{} {}]\n", image.media_type, image.sha256)),
            ContentBlock::Text { .. }
            | ContentBlock::Thinking { .. }
            | ContentBlock::ToolCall(_)
            | ContentBlock::Other { .. } => None,
        });
        return shown.chain([text_of(content).into_string()]).collect();
    }
    serde_json::to_string(message).unwrap_or_default()
}
