//! The texts of a recorded request. A replay compares them with its own request and reports the first difference. Only
//! text for the model is compared, and only the part since the previous reply.

use serde::{Deserialize, Serialize};

use super::{IdPlaceholders, turn_text, turns};
use crate::exchange::Request;
use crate::message::ProviderMessage;

/// Maximum characters shown of a line that differs.
const MAX_SHOWN_CHARS: usize = 160;

/// Texts that a request must contain exactly; omitted fields are not compared.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedRequest {
    /// The system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The names in the palette.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The user messages since the previous reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Vec<String>>,
    /// The tool results since the previous reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<String>>,
}

impl RecordedRequest {
    /// Records all texts of a request.
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
        }
    }

    /// Removes empty fields, and fields that are unchanged since `before`.
    #[must_use]
    pub fn without_unchanged(self, before: Option<&Self>) -> Self {
        let same = |now: &Option<_>, before: Option<&Option<_>>| before == Some(now);
        Self {
            system: self.system.clone().filter(|_| !same(&self.system, before.map(|b| &b.system))),
            tools: self.tools.filter(|tools| before.is_none_or(|b| b.tools.as_ref() != Some(tools))),
            user: self.user.filter(|texts| !texts.is_empty()),
            results: self.results.filter(|texts| !texts.is_empty()),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Compares with `request`.
    ///
    /// # Errors
    /// The first difference: the location, the recorded line, and the current line.
    pub(super) fn check(&self, request: &Request) -> Result<(), String> {
        let now = Self::from_request(request);
        if let (Some(then), Some(now)) = (&self.system, &now.system) {
            compare_text("the system prompt", then, now)?;
        }
        if let (Some(then), Some(now)) = (&self.tools, &now.tools) {
            compare_text("the palette", &then.join("\n"), &now.join("\n"))?;
        }
        compare_texts("user message", self.user.as_deref(), now.user.as_deref())?;
        compare_texts("tool result", self.results.as_deref(), now.results.as_deref())
    }
}

fn compare_texts(what: &str, then: Option<&[String]>, now: Option<&[String]>) -> Result<(), String> {
    let (Some(then), Some(now)) = (then, now) else { return Ok(()) };
    for (n, (then, now)) in (1..).zip(then.iter().zip(now)) {
        compare_text(&format!("{what} {n}"), then, now)?;
    }
    if then.len() == now.len() {
        return Ok(());
    }
    Err(format!("there were {} {what}s, now there are {}", then.len(), now.len()))
}

/// Compares two texts line by line.
///
/// # Errors
///
/// Returns the first line that differs.
fn compare_text(place: &str, then: &str, now: &str) -> Result<(), String> {
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
        if before != after || before.is_none() {
            return Err(format!(
                "{place} differs in line {line}: recorded was {}, now it is {}",
                short(before),
                short(after)
            ));
        }
    }
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
    fn first_difference_is_reported() {
        let recorded = RecordedRequest::from_request(&minimal_request());
        let difference = |change: &dyn Fn(&mut Request)| {
            let mut request = minimal_request();
            change(&mut request);
            recorded.check(&request).err().unwrap_or_default()
        };
        assert_eq!(
            difference(&|request| request.system = "Be brief.\nBe kind.".into()),
            "the system prompt differs in line 2: recorded was nothing, now it is `Be kind.`"
        );
        assert_eq!(
            difference(&|request| request.turns = vec![user(vec![text("Hallo")])]),
            "user message 1 differs in line 1: recorded was `Hello`, now it is `Hallo`"
        );
        assert_eq!(
            difference(&|request| request.turns.push(result("i", "r", false))),
            "there were 0 tool results, now there are 1"
        );
        assert!(
            difference(&|request| request.tools = full_request().tools).starts_with("the palette differs in line 1")
        );
    }
}
