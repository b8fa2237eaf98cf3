//! The cost of a session: of all its threads, of each prompt and of each child.

use std::collections::BTreeMap;

use rye_compiler::semantics::money::Nanos;
use rye_engine::event::{Event, EventBody};
use rye_engine::session_tree::session_rows;
use rye_engine::thread::Cost;
use rye_engine::thread_id::ThreadId;
use serde_json::{Value, json};

use super::requests::RequestHandler;

/// Maximum number of prompts, and of children, that human output lists. Older ones are left out.
const MAX_LISTED: usize = 10;

/// Facts about a child from the transcript of its parent: the number of the prompt that started the child, and the
/// nano-dollars reserved for the child.
#[derive(Debug, Clone, Copy)]
struct ChildOfPrompt {
    prompt: Option<u64>,
    reserved: u64,
}

impl RequestHandler {
    /// Returns the cost of the session over all of its threads, with the cost of each prompt and each child.
    pub(super) async fn cost(&self) -> Result<Value, String> {
        let live = self.control.started_state().await;
        let thread = ThreadId::parse(live.thread_id().unwrap_or_default()).map_err(|invalid| invalid.reason)?;
        let threads = self.engine.threads();
        let mut rows = session_rows(&threads, &thread).map_err(|error| error.to_string())?;
        let (mut prompts, mut started) = (Vec::new(), BTreeMap::new());
        let mut handed_on = None;
        for row in &rows {
            let events = threads.transcript(&row.id).map_err(|error| error.to_string())?;
            prompts.extend(ended_prompts(&row.id, &events, handed_on.as_ref()));
            started.extend(started_children(&events));
            if row.id != thread {
                handed_on = HandedOnPrompt::of_thread(&events, &row.cost, handed_on.as_ref());
            }
        }
        let running = live.state.prompt_number().map(|number| {
            let mut cost = live.state.prompt_cost();
            cost.add(&HandedOnPrompt::cost_before(handed_on.as_ref(), number));
            prompts.push(prompt_json(&thread, number, "running", &cost));
            cost
        });
        let is_child = |parent: &ThreadId| rows.iter().any(|row| row.id == *parent);
        let listed = threads.list().map_err(|error| error.to_string())?;
        let children =
            listed.into_iter().map(|entry| entry.row).filter(|row| row.parent.as_ref().is_some_and(is_child));
        let children: Vec<Value> = children
            .map(|row| {
                let child = started.get(row.id.as_str());
                let reserved = child.filter(|_| !row.status.has_ended()).map(|child| dollars(child.reserved));
                json!({
                    "thread_id": row.id.as_str(),
                    "directive": row.directive,
                    "prompt": child.and_then(|child| child.prompt),
                    "status": row.status,
                    "spend": dollars(row.cost.spend),
                    "reserved": reserved,
                })
            })
            .collect();
        let before: Cost = rows.iter().filter(|row| row.id != thread).map(|row| &row.cost).sum();
        // The registry row of the running thread can be older than its live state, so the cost comes from the state.
        for row in rows.iter_mut().filter(|row| row.id == thread) {
            row.cost = live.state.cost;
        }
        let session = threads.chain_cost(&rows).map_err(|error| error.to_string())?;
        let limit = before.spend.saturating_add(live.state.thread_limits.spend);
        let mut data = json!({
            "session": amounts(&session),
            "prompt": running.as_ref().map(amounts),
            "session_limit": dollars(limit),
        });
        if let Value::Object(fields) = &mut data {
            fields.insert("prompts".to_owned(), Value::Array(prompts));
            fields.insert("children".to_owned(), Value::Array(children));
        }
        Ok(data)
    }
}

/// A prompt that continues in the next thread of the session, because its context was full.
#[derive(Debug, Clone, Copy)]
struct HandedOnPrompt {
    number: u64,
    /// The cost of the prompt in this thread and in the earlier threads.
    cost: Cost,
}

impl HandedOnPrompt {
    /// Returns the prompt that a thread has started and not ended; `None` if there is none. `total` is the cost of the
    /// thread, and `before` the prompt that the thread itself continues.
    fn of_thread(events: &[Event], total: &Cost, before: Option<&Self>) -> Option<Self> {
        let (mut open, mut ended) = (None, Cost::default());
        for event in events {
            if let EventBody::PromptStarted(started) = &event.body {
                open = Some(started.prompt);
            } else if let EventBody::PromptEnded(prompt) = &event.body {
                open = None;
                ended.add(&prompt.cost);
            }
        }
        let number = open?;
        let mut cost = total.since(&ended);
        cost.add(&Self::cost_before(before, number));
        Some(Self { number, cost })
    }

    /// Returns the cost of the prompt with this number in earlier threads; zero if the prompt did not start in an
    /// earlier thread.
    fn cost_before(handed_on: Option<&Self>, number: u64) -> Cost {
        handed_on.filter(|prompt| prompt.number == number).map_or_else(Cost::default, |prompt| prompt.cost)
    }
}

/// Returns the ended prompts of a thread with their costs. `handed_on` is the prompt that the thread continues.
fn ended_prompts(thread: &ThreadId, events: &[Event], handed_on: Option<&HandedOnPrompt>) -> Vec<Value> {
    let ended = events.iter().filter_map(|event| {
        let EventBody::PromptEnded(ended) = &event.body else { return None };
        let status = serde_json::to_value(ended.status).unwrap_or_default();
        let mut cost = ended.cost;
        cost.add(&HandedOnPrompt::cost_before(handed_on, ended.prompt));
        Some(prompt_json(thread, ended.prompt, status.as_str().unwrap_or_default(), &cost))
    });
    ended.collect()
}

/// Returns the children that a thread has started, by thread id.
fn started_children(events: &[Event]) -> BTreeMap<String, ChildOfPrompt> {
    let (mut found, mut prompt) = (BTreeMap::new(), None);
    for event in events {
        if let EventBody::PromptStarted(started) = &event.body {
            prompt = Some(started.prompt);
        } else if let EventBody::PromptEnded(_) = &event.body {
            prompt = None;
        } else if let EventBody::ChildSpawned(child) = &event.body {
            found.insert(child.thread_id.clone(), ChildOfPrompt { prompt, reserved: child.spend });
        }
    }
    found
}

fn prompt_json(thread: &ThreadId, number: u64, status: &str, cost: &Cost) -> Value {
    let mut prompt = amounts(cost);
    if let Value::Object(fields) = &mut prompt {
        fields.insert("prompt".to_owned(), number.into());
        fields.insert("thread_id".to_owned(), thread.as_str().into());
        fields.insert("status".to_owned(), status.into());
    }
    prompt
}

fn amounts(cost: &Cost) -> Value {
    json!({
        "turns": cost.turns,
        "input_tokens": cost.input_tokens,
        "output_tokens": cost.output_tokens,
        "cached_tokens": cost.cached_tokens,
        "spend": dollars(cost.spend),
        "outstanding": dollars(cost.outstanding),
        "unpriced": cost.unpriced,
    })
}

fn dollars(nanos: u64) -> Value {
    Nanos::from_u64(nanos).to_json()
}

/// Formats the answer to `/cost`: a line for the session, then the last prompts and the last children.
pub fn format_cost(data: &Value) -> String {
    let list = |name: &str| data.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let session = data.get("session").cloned().unwrap_or_default();
    let mut lines =
        vec![format!("{} of ${}{}", format_amounts(&session), text(data, "session_limit"), unknown(&session))];
    let prompts = list("prompts");
    lines.extend(omitted(prompts.len(), "prompts"));
    lines.extend(prompts.iter().skip(prompts.len().saturating_sub(MAX_LISTED)).map(|prompt| {
        format!(
            "prompt {} {}: {}{}",
            text(prompt, "prompt"),
            text(prompt, "status"),
            format_amounts(prompt),
            unknown(prompt)
        )
    }));
    let children = list("children");
    lines.extend(omitted(children.len(), "children"));
    lines.extend(children.iter().skip(children.len().saturating_sub(MAX_LISTED)).map(|child| {
        let number = text(child, "prompt");
        let of_prompt = if number.is_empty() { number } else { format!(" of prompt {number}") };
        let reserved = text(child, "reserved");
        let reserved = if reserved.is_empty() { reserved } else { format!(", ${reserved} reserved") };
        format!(
            "child {}{of_prompt} {}: ${}{reserved}",
            text(child, "thread_id"),
            text(child, "status"),
            text(child, "spend")
        )
    }));
    lines.join("\n")
}

fn format_amounts(cost: &Value) -> String {
    format!(
        "turns {}, tokens in {} ({} cached), tokens out {}, ${}",
        text(cost, "turns"),
        text(cost, "input_tokens"),
        text(cost, "cached_tokens"),
        text(cost, "output_tokens"),
        text(cost, "spend")
    )
}

fn unknown(cost: &Value) -> &'static str {
    if cost.get("unpriced") == Some(&Value::Bool(true)) { " and unknown costs" } else { "" }
}

/// Returns a line that counts the entries beyond `MAX_LISTED`, which are not listed; `None` if all entries are listed.
fn omitted(count: usize, named: &str) -> Option<String> {
    let more = count.checked_sub(MAX_LISTED).filter(|more| *more > 0)?;
    Some(format!("earlier {named}: {more}; the request `cost` of `rye chat --format json` lists all"))
}

/// Returns a field as text; empty if it is absent or null.
fn text(value: &Value, key: &str) -> String {
    match value.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rye_engine::thread::Status;

    use super::*;

    #[test]
    fn cost_has_a_line_for_the_session_each_prompt_and_each_child() {
        let thread = ThreadId::parse("talk-1").unwrap();
        let cost = |spend| Cost {
            turns: 1,
            input_tokens: 600,
            cached_tokens: 400,
            output_tokens: 2,
            spend,
            ..Cost::default()
        };
        let child = |id: &str, prompt: Option<u64>, status: Status, reserved: Option<u64>| {
            json!({"thread_id": id, "directive": "kid", "prompt": prompt, "status": status,
                "spend": dollars(30_000_000), "reserved": reserved.map(dollars)})
        };
        let prompts: Vec<Value> =
            (1..=11).map(|number| prompt_json(&thread, number, "done", &cost(2_000_000))).collect();
        let unpriced = Cost { unpriced: true, ..cost(22_000_000) };
        let data = json!({
            "session": amounts(&unpriced),
            "session_limit": dollars(5_000_000_000),
            "prompts": prompts,
            "children": [child("kid-1", Some(1), Status::Completed, None), child("kid-2", None, Status::Running, Some(400_000_000))],
        });
        let shown = format_cost(&data);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines.first().copied(),
            Some("turns 1, tokens in 600 (400 cached), tokens out 2, $0.022 of $5 and unknown costs")
        );
        assert_eq!(
            lines.get(1).copied(),
            Some("earlier prompts: 1; the request `cost` of `rye chat --format json` lists all")
        );
        assert_eq!(
            lines.get(2).copied(),
            Some("prompt 2 done: turns 1, tokens in 600 (400 cached), tokens out 2, $0.002")
        );
        let last: Vec<&str> = lines.iter().rev().take(2).copied().collect();
        assert_eq!(last, ["child kid-2 running: $0.03, $0.4 reserved", "child kid-1 of prompt 1 completed: $0.03"]);
    }

    #[test]
    fn children_belong_to_the_prompt_that_started_them() {
        let limits =
            json!({"turns": 9, "tokens": 9, "spend": 9, "spawns": 9, "depth": 9, "duration_seconds": 9, "output": 9});
        let cost = serde_json::to_value(Cost::default()).unwrap();
        let bodies = [
            json!({"type": "prompt_started", "prompt": 3, "limits": limits}),
            json!({"type": "child_spawned", "spawn": 1, "thread_id": "kid-1", "spend": 7}),
            json!({"type": "prompt_ended", "prompt": 3, "status": "limit", "code": "x", "message": "y", "cost": cost}),
            json!({"type": "child_spawned", "spawn": 2, "thread_id": "kid-2", "spend": 8}),
        ];
        let events: Vec<Event> = bodies
            .into_iter()
            .map(|body| Event { seq: 0, ts: 0, body: serde_json::from_value(body).unwrap() })
            .collect();
        let found = started_children(&events);
        let of = |id: &str| found.get(id).map(|child| (child.prompt, child.reserved));
        assert_eq!((of("kid-1"), of("kid-2")), (Some((Some(3), 7)), Some((None, 8))));
        let prompts = ended_prompts(&ThreadId::parse("talk-1").unwrap(), &events, None);
        assert_eq!(prompts.first().map(|prompt| text(prompt, "status")).as_deref(), Some("limit"));
    }

    #[test]
    fn prompt_that_continues_in_another_thread_has_its_whole_cost() {
        let limits =
            json!({"turns": 9, "tokens": 9, "spend": 9, "spawns": 9, "depth": 9, "duration_seconds": 9, "output": 9});
        let cost = |turns, spend| Cost { turns, spend, ..Cost::default() };
        let started = |prompt: u64| json!({"type": "prompt_started", "prompt": prompt, "limits": limits});
        let ended =
            |prompt: u64, cost: Cost| json!({"type": "prompt_ended", "prompt": prompt, "status": "done", "cost": cost});
        let events = |bodies: Vec<Value>| -> Vec<Event> {
            let event = |body| Event { seq: 0, ts: 0, body: serde_json::from_value(body).unwrap() };
            bodies.into_iter().map(event).collect()
        };
        let first = events(vec![started(1), ended(1, cost(2, 20)), started(2)]);
        let handed_on = HandedOnPrompt::of_thread(&first, &cost(5, 90), None);
        let second = events(vec![started(2)]);
        let again = HandedOnPrompt::of_thread(&second, &cost(1, 4), handed_on.as_ref());
        let last = events(vec![started(2), ended(2, cost(1, 6)), started(3), ended(3, cost(1, 1))]);
        let prompts = ended_prompts(&ThreadId::parse("talk-3").unwrap(), &last, again.as_ref());
        let found: Vec<_> = prompts.iter().map(|prompt| (text(prompt, "turns"), text(prompt, "spend"))).collect();
        let expected = [("5", "8e-8"), ("1", "1e-9")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found, expected);
        assert!(HandedOnPrompt::of_thread(&last, &cost(2, 7), again.as_ref()).is_none());
    }
}
