//! The texts of a recorded request: the system prompt, the names of the tools, and the messages since the previous
//! reply. A replay compares its own request with these texts and reports the first difference.

use serde::{Deserialize, Serialize};

use super::{IdPlaceholders, turn_text, turns};
use crate::exchange::Request;
use crate::message::ProviderMessage;

/// Maximum number of characters that an error message shows of a line that differs from the recording.
const MAX_SHOWN_CHARS: usize = 160;

/// The recorded parts of a request. A request matches only if its parts are equal to the recorded ones. A part that is
/// `None` is not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// The system prompt; `None` if it is not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The names of all tools that the request offers; `None` if they are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The user messages since the previous reply; `None` if they are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Vec<String>>,
    /// The texts of the tool results since the previous reply; `None` if they are not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<String>>,
    /// The limit `duration_seconds` of a child in the recording; `None` for a root thread. The limit can differ in a
    /// replay. The comparison therefore accepts a line that differs from the recorded line only in the value of this
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
}

impl RecordedRequest {
    /// Records the texts of a request that a replay compares: the system prompt, the names of the tools, and the user
    /// messages and tool results since the previous reply.
    pub fn from_request(request: &Request) -> Self {
        let ids = IdPlaceholders::of(&request.cue);
        let since: Vec<ProviderMessage<'_>> =
            turns(request).rev().take_while(|turn| !matches!(turn, ProviderMessage::Assistant { .. })).collect();
        let texts = |results: bool| -> Vec<String> {
            let mine = |turn: &&ProviderMessage<'_>| matches!(turn, ProviderMessage::ToolResult { .. }) == results;
            since.iter().rev().filter(mine).map(|turn| ids.replace_in_text(&turn_text(*turn))).collect()
        };
        Self {
            system: Some(ids.replace_in_text(&request.system)),
            tools: Some(request.tools.iter().map(|tool| tool.name.to_string()).collect()),
            user: Some(texts(false)),
            results: Some(texts(true)),
            duration_seconds: request.cue.duration_seconds,
        }
    }

    /// Removes the fields that a script need not contain: `user` and `results` if they are empty, and every other field
    /// that has the same value in `before`, the recorded request before this one.
    #[must_use]
    pub fn without_unchanged(self, before: Option<&Self>) -> Self {
        let same = |now: &Option<_>, before: Option<&Option<_>>| before == Some(now);
        Self {
            system: self.system.clone().filter(|_| !same(&self.system, before.map(|b| &b.system))),
            tools: self.tools.filter(|tools| before.is_none_or(|b| b.tools.as_ref() != Some(tools))),
            user: self.user.filter(|texts| !texts.is_empty()),
            results: self.results.filter(|texts| !texts.is_empty()),
            duration_seconds: self
                .duration_seconds
                .filter(|limit| before.is_none_or(|before| before.duration_seconds != Some(*limit))),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares the recorded texts with the texts of `request`.
    ///
    /// # Errors
    /// The first difference: the location, the recorded line, and the current line.
    pub(super) fn check(&self, request: &Request) -> Result<(), String> {
        let now = Self::from_request(request);
        let durations = self.duration_seconds.zip(now.duration_seconds);
        if let (Some(then), Some(now)) = (&self.system, &now.system) {
            compare_text("the system prompt", then, now, durations)?;
        }
        if let (Some(then), Some(now)) = (&self.tools, &now.tools) {
            compare_text("the palette", &then.join("\n"), &now.join("\n"), None)?;
        }
        compare_texts("user message", self.user.as_deref(), now.user.as_deref(), durations)?;
        compare_texts("tool result", self.results.as_deref(), now.results.as_deref(), durations)
    }
}

/// The recorded and the current limit `duration_seconds` of a child; `None` if one of the two values is unknown.
type Durations = Option<(u64, u64)>;

fn compare_texts(
    what: &str,
    then: Option<&[String]>,
    now: Option<&[String]>,
    durations: Durations,
) -> Result<(), String> {
    let (Some(then), Some(now)) = (then, now) else { return Ok(()) };
    for (n, (then, now)) in (1..).zip(then.iter().zip(now)) {
        compare_text(&format!("{what} {n}"), then, now, durations)?;
    }
    if then.len() == now.len() {
        return Ok(());
    }
    Err(format!("the recording has {} {what}(s), this run has {}", then.len(), now.len()))
}

/// Compares the recorded text `then` with the text `now` of this run, line by line. A different limit
/// `duration_seconds` of the thread counts as equal. `place` names the text in the error.
///
/// # Errors
///
/// Returns a message with the first line that differs.
fn compare_text(place: &str, then: &str, now: &str, durations: Durations) -> Result<(), String> {
    if then == now {
        return Ok(());
    }
    let short = |line: Option<&str>| match line {
        None => "nothing".to_owned(),
        Some(line) => {
            let more = if line.chars().nth(MAX_SHOWN_CHARS).is_some() { "…" } else { "" };
            format!("`{}{more}`", line.chars().take(MAX_SHOWN_CHARS).collect::<String>())
        }
    };
    let (mut then, mut now) = (then.split('\n'), now.split('\n'));
    let mut line = 0_usize;
    loop {
        line += 1;
        let (before, after) = (then.next(), now.next());
        if before.is_none() && after.is_none() {
            return Ok(());
        }
        if !before.zip(after).is_some_and(|(before, after)| lines_match(before, after, durations)) {
            return Err(format!(
                "{place} differs in line {line}: the recording has {}, this run has {}",
                short(before),
                short(after)
            ));
        }
    }
}

/// Returns true if two lines are equal. `durations` are the recorded and the current value of the limit
/// `duration_seconds`. With `durations`, the lines may also differ in this limit.
fn lines_match(then: &str, now: &str, durations: Durations) -> bool {
    let Some((recorded, current)) = durations.filter(|_| then != now) else { return then == now };
    let (recorded, current) = (recorded.to_string(), current.to_string());
    let mut parts = split_numbers(then).zip(split_numbers(now));
    split_numbers(then).count() == split_numbers(now).count()
        && parts.all(|(then, now)| then == now || (then == recorded && now == current))
}

/// Splits a line into numbers and the texts between them.
fn split_numbers(line: &str) -> impl Iterator<Item = &str> {
    line.as_bytes().chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()).scan(0, move |start, part| {
        let range = *start..*start + part.len();
        *start = range.end;
        line.get(range)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::ThreadPosition;
    use crate::provider::fixture::{full_request, minimal_request, result, text, user};

    #[test]
    fn recorded_request_matches_in_another_thread() {
        let in_thread = |thread: &str| {
            let mut request = full_request();
            request.cue = ThreadPosition { thread: thread.to_owned(), ..ThreadPosition::default() };
            request.system = format!("You are {thread}.").into();
            request
        };
        let recorded = RecordedRequest::from_request(&in_thread("a-1"));
        assert_eq!(recorded.system.as_deref(), Some("You are ${thread_id}."));
        assert_eq!(recorded.check(&in_thread("a-2")), Ok(()));
        assert!(recorded.clone().without_unchanged(Some(&recorded)).system.is_none());
    }

    #[test]
    fn remaining_time_of_the_parent_is_not_a_difference() {
        let with_limit = |seconds: u64, line: &str| {
            let mut request = minimal_request();
            request.cue.duration_seconds = Some(seconds);
            request.turns = vec![user(vec![text(line)])];
            request
        };
        let recorded = RecordedRequest::from_request(&with_limit(598, "Limits: 15 turns, 598 seconds; 600 words"));
        let check = |seconds: u64, line: &str| recorded.check(&with_limit(seconds, line));
        assert_eq!(check(600, "Limits: 15 turns, 600 seconds; 600 words"), Ok(()));
        assert_eq!(check(99, "Limits: 15 turns, 99 seconds; 600 words"), Ok(()));
        for (seconds, line) in [
            (600, "Limits: 15 turns, 599 seconds; 600 words"),
            (600, "Limits: 16 turns, 600 seconds; 600 words"),
            (600, "Limits: 15 turns, 600 seconds; 598 words"),
            (600, "Limits: 15 turns, 600 seconds; 600 words 1"),
        ] {
            assert!(check(seconds, line).unwrap_err().starts_with("user message 1 differs in line 1"), "{line}");
        }
    }

    #[test]
    fn first_difference_is_reported() {
        let recorded = RecordedRequest::from_request(&minimal_request());
        let difference = |change: &dyn Fn(&mut Request)| {
            let mut request = minimal_request();
            change(&mut request);
            recorded.check(&request).err().unwrap_or_default()
        };
        assert_eq!(
            difference(&|request| request.system = "Be brief.\nBe kind.".into()),
            "the system prompt differs in line 2: the recording has nothing, this run has `Be kind.`"
        );
        assert_eq!(
            difference(&|request| request.turns = vec![user(vec![text("Hallo")])]),
            "user message 1 differs in line 1: the recording has `Hello`, this run has `Hallo`"
        );
        assert_eq!(
            difference(&|request| request.turns.push(result("i", "r", false))),
            "the recording has 0 tool result(s), this run has 1"
        );
        assert!(
            difference(&|request| request.tools = full_request().tools).starts_with("the palette differs in line 1")
        );
    }
}
