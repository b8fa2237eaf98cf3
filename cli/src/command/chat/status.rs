//! The status line of the terminal of a chat: model, use of the context window, costs.

use std::collections::BTreeSet;

use rye_compiler::model::SCRIPTED_WIRE;
use rye_compiler::plan::Plan;
use rye_engine::event::{ChatMode, ControlMessage, Event, EventBody, ThreadOrigin};
use rye_engine::exchange::Usage;
use rye_engine::live_state::LiveState;
use rye_engine::preview::context_parts;
use rye_engine::thread::Cost;
use unicode_width::UnicodeWidthStr;

use super::screen::Row;
use crate::present::{DIM, format_money};
use crate::report::printable;

/// Facts of a session for its status line.
#[derive(Debug, Default)]
pub struct SessionStatus {
    model: String,
    /// True if a script replaces the model, so that the costs are simulated.
    is_scripted: bool,
    /// Size of the context window, in tokens.
    context_window: u64,
    /// Tokens of the last request and its reply. For a thread without requests, the estimate for its next request.
    context: u64,
    /// The id of the current thread if the tokens of the thread's next request are not estimated yet; otherwise `None`.
    unestimated: Option<String>,
    /// Tokens of the last request, and the number of them that came from the provider's cache.
    input: (u64, u64),
    /// Cost of the current prompt, in nano-dollars.
    prompt_cost: u64,
    session_cost: u64,
    prompt_limit: u64,
    session_limit: u64,
    /// The cost of the session's current thread, in nano-dollars, with the cost of its ended children.
    thread_cost: u64,
    /// The threads that the current prompt has started. `earlier_children` holds the threads of earlier prompts, whose
    /// cost is not part of `prompt_cost`.
    children: BTreeSet<String>,
    earlier_children: BTreeSet<String>,
    /// The expected and the highest price, in nano-dollars, of the request that the text in the editor would cause;
    /// `None` if the text would cause no request.
    next: Option<(u64, u64)>,
    mode: ChatMode,
    /// True if the session calls a model without a price.
    unpriced: bool,
}

impl SessionStatus {
    /// Creates the status of a session. `recorded` holds the earlier events of a session that was opened again, and
    /// `cost_before` is the cost of its earlier threads.
    pub fn new(plan: &Plan, recorded: &[Event], cost_before: Cost) -> Self {
        let mut status = Self {
            model: printable(&plan.model.id),
            context_window: plan.model.context_window,
            prompt_limit: plan.limits.spend,
            unpriced: plan.model.prices.is_none() && plan.model.wire != SCRIPTED_WIRE,
            session_cost: cost_before.spend,
            ..Self::default()
        };
        for event in recorded {
            status.follow(None, &event.body);
            // `recorded` contains no events of children, so the cost of a child is added when the child has ended.
            if let EventBody::ChildEnded(child) = &event.body {
                status.session_cost = status.session_cost.saturating_add(child.cost.spend);
            }
        }
        status.prompt_cost = 0;
        status
    }

    /// Records in the status line whether a script replaces the model of the session.
    #[must_use]
    pub fn scripted(self, is_scripted: bool) -> Self {
        Self { is_scripted, ..self }
    }

    /// Updates the status from an event of the thread `child`; `None` stands for the session's own thread.
    pub fn follow(&mut self, child: Option<&str>, event: &EventBody) {
        let is_main = child.is_none();
        let is_earlier = child.is_some_and(|child| self.earlier_children.contains(child));
        if let EventBody::Settled(settled) = event {
            if !is_earlier {
                self.prompt_cost = self.prompt_cost.saturating_add(settled.amount);
            }
            if is_main {
                self.thread_cost = self.thread_cost.saturating_add(settled.amount);
            }
            self.session_cost = self.session_cost.saturating_add(settled.amount);
            // A failed attempt may have no usage.
            let has_usage = settled.usage != Usage::default();
            if is_main && !settled.unknown_outcome && has_usage {
                self.unestimated = None;
                self.context = settled.usage.whole_input().saturating_add(settled.usage.output);
                self.input = (settled.usage.whole_input(), settled.usage.cache_read);
            }
        }
        if let EventBody::ChildSpawned(spawned) = event {
            let children = if is_earlier { &mut self.earlier_children } else { &mut self.children };
            children.insert(spawned.thread_id.clone());
        }
        if !is_main {
            return;
        }
        if let EventBody::ChildEnded(ended) = event {
            self.thread_cost = self.thread_cost.saturating_add(ended.cost.spend);
        }
        if let EventBody::Opened(opened) = event {
            // A thread that continues the session has the rest of the session's budget as its limit.
            self.thread_cost = 0;
            self.session_limit = self.session_cost.saturating_add(opened.limits.spend);
            // The new thread may have another conversation (after `/fork`, for example).
            (self.context, self.input) = (0, (0, 0));
            self.unestimated = Some(opened.thread_id.clone());
            if opened.origin == ThreadOrigin::Fork {
                self.prompt_cost = 0;
            }
        }
        if let EventBody::PromptStarted(started) = event {
            self.prompt_cost = 0;
            self.earlier_children.append(&mut self.children);
            // The limits of a prompt count from the start of its thread.
            self.prompt_limit = started.limits.spend.saturating_sub(self.thread_cost);
        }
        if let EventBody::Mail(mail) = event
            && let ControlMessage::Mode { mode } = &mail.message
        {
            self.mode = *mode;
        }
        if let EventBody::Continues(continues) = event {
            self.mode = continues.mode;
        }
        if let EventBody::Recovered(_) = event {
            self.mode = self.mode.min(ChatMode::Ask);
        }
        if let EventBody::AttemptIntended(attempt) = event {
            self.model = printable(&attempt.model);
            self.unpriced |= attempt.unpriced;
        }
    }

    /// Returns the mode of the next prompt.
    pub fn mode(&self) -> ChatMode {
        self.mode
    }

    /// Reads the model and the limit of the next prompt from the state of an idle session, because a command may have
    /// changed the model or the limit.
    pub fn read_idle_state(&mut self, live: &LiveState) {
        let model = live.state.model(&live.plan);
        self.model = printable(&model.id);
        self.context_window = model.context_window;
        self.prompt_limit = live.plan.limits.spend;
        if self.unestimated.as_deref().is_some_and(|thread| live.thread_id() == Some(thread)) {
            self.unestimated = None;
            // The first thread of a session has no conversation that could be estimated.
            if live.state.continues.is_none() {
                return;
            }
            self.context = context_parts(live).iter().map(|part| part.tokens).sum();
        }
    }

    /// Returns the used part of the context window in percent; `None` if the size of the window is unknown.
    pub fn used_percent(&self) -> Option<u64> {
        self.context.saturating_mul(100).checked_div(self.context_window)
    }

    /// Sets the expected and the highest price of the next request, in nano-dollars. With `None`, no price is shown.
    pub fn set_next(&mut self, next: Option<(u64, u64)>) {
        self.next = next;
    }

    /// Renders the status line. If not all fields fit into `columns`, the less important ones are left out. If the
    /// limits leave no room for the cost of the session, the limits are left out.
    pub fn row(&self, columns: usize) -> Row {
        let has_cost = |line: &str| line.contains("session $") || self.unpriced;
        let with_limits = self.line(columns, true);
        let line = if has_cost(&with_limits) { with_limits } else { self.line(columns, false) };
        Row::new(if line.is_empty() { line } else { format!("{DIM}{line}{DIM:#}") })
    }

    fn line(&self, columns: usize, has_limits: bool) -> String {
        let fields = self.fields(has_limits);
        let mut by_importance: Vec<usize> = (0..fields.len()).collect();
        by_importance.sort_by_key(|at| fields.get(*at).map(|(importance, _)| *importance));
        let line_of = |shown: &[usize]| {
            let shown = fields.iter().enumerate().filter(|(at, _)| shown.contains(at));
            shown.map(|(_, (_, text))| text.as_str()).collect::<Vec<_>>().join(" · ")
        };
        let mut shown = Vec::new();
        for at in by_importance {
            shown.push(at);
            if line_of(&shown).width() + 1 > columns {
                shown.pop();
            }
        }
        // Without its model, a line would state facts of an unknown subject.
        if shown.contains(&0) { line_of(&shown) } else { String::new() }
    }

    /// Returns the fields from left to right, each with its importance; the most important field has the lowest number.
    fn fields(&self, has_limits: bool) -> Vec<(u8, String)> {
        let percent = |part: u64, whole: u64| part.saturating_mul(100) / whole.max(1);
        let context = (self.context_window > 0).then(|| {
            let (used, all) = (format_tokens(self.context), format_tokens(self.context_window));
            format!("{used}/{all} {}%", percent(self.context, self.context_window))
        });
        let money = |name: &str, cost: u64, limit: u64| {
            let limit = if limit > 0 && has_limits { format!(" of ${}", trim_dollars(limit)) } else { String::new() };
            format!("{name} ${}{limit}", trim_dollars(cost))
        };
        let (input, cached) = self.input;
        let cache = (cached > 0).then(|| format!("cache {}%", percent(cached, input)));
        let mut costs = if self.unpriced && self.session_cost == 0 {
            vec![(2, "cost unknown".to_owned())]
        } else {
            vec![
                (5, money("prompt", self.prompt_cost, self.prompt_limit)),
                (2, money("session", self.session_cost, self.session_limit)),
            ]
        };
        if self.unpriced && self.session_cost > 0 {
            costs.push((3, "unknown costs".to_owned()));
        }
        let next = self
            .next
            .filter(|_| !self.unpriced)
            .map(|(expected, most)| format!("next ≈ ${} (max ${})", trim_dollars(expected), trim_dollars(most)));
        let mode = (self.mode != ChatMode::Ask).then(|| self.mode.as_str().to_owned());
        let model = if self.is_scripted && self.model != SCRIPTED_WIRE {
            format!("script for {}", self.model)
        } else {
            self.model.clone()
        };
        let simulated = self.is_scripted.then(|| "costs simulated".to_owned());
        let before = [(0, Some(model)), (1, mode), (7, simulated), (6, context), (4, next)];
        let fields = before.into_iter().filter_map(|(importance, field)| Some((importance, field?)));
        fields.chain(costs).chain(cache.map(|cache| (8, cache))).collect()
    }
}

/// Formats nano-dollars with at most four decimals, rounded up: `0.0413`.
fn trim_dollars(nanos: u64) -> String {
    const STEP: u64 = 100_000;
    let rounded = nanos.div_ceil(STEP).saturating_mul(STEP);
    format_money(rounded).trim_start_matches('$').to_owned()
}

/// Formats a number of tokens: `950`, `18.2k`, `200k`, `1M`.
fn format_tokens(tokens: u64) -> String {
    let scaled = |unit: u64, name: &str| {
        let (whole, tenth) = (tokens / unit, tokens % unit * 10 / unit);
        if whole >= 100 || tenth == 0 { format!("{whole}{name}") } else { format!("{whole}.{tenth}{name}") }
    };
    match tokens {
        0..1000 => tokens.to_string(),
        1000..1_000_000 => scaled(1000, "k"),
        _ => scaled(1_000_000, "M"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn narrow_line_drops_less_important_fields_before_the_cost_of_the_session() {
        let status = SessionStatus {
            model: "sonnet".into(),
            is_scripted: false,
            context_window: 200_000,
            context: 18_240,
            unestimated: None,
            input: (100, 96),
            prompt_cost: 41_230_000,
            session_cost: 310_000_000,
            prompt_limit: 500_000_000,
            session_limit: 5_000_000_000,
            next: None,
            mode: ChatMode::Ask,
            ..SessionStatus::default()
        };
        let plain = |status: &SessionStatus, columns| {
            status.row(columns).text().replace("\u{1b}[2m", "").replace("\u{1b}[0m", "")
        };
        assert_eq!(
            plain(&status, 100),
            "sonnet · 18.2k/200k 9% · prompt $0.0413 of $0.5 · session $0.31 of $5 · cache 96%"
        );
        assert_eq!(plain(&status, 30), "sonnet · session $0.31 of $5");
        assert_eq!(plain(&status, 25), "sonnet · session $0.31");
        assert_eq!(plain(&status, 10), "sonnet");
        assert_eq!(plain(&status, 3), "");
        let scripted = status.scripted(true);
        let shown = "script for sonnet · costs simulated · 18.2k/200k 9% · prompt $0.0413 of $0.5 · session $0.31 of $5 · cache 96%";
        assert_eq!(plain(&scripted, 120), shown);
        let shown = "script for sonnet · next ≈ $0.0003 (max $0.0213) · prompt $0.0413 of $0.5 · session $0.31 of $5";
        let typing = SessionStatus { next: Some((300_000, 21_300_000)), ..scripted };
        assert_eq!(plain(&typing, 100), shown);
        let scripted = SessionStatus { next: None, ..typing };
        let read_only = SessionStatus { mode: ChatMode::ReadOnly, is_scripted: false, ..scripted };
        assert_eq!(plain(&read_only, 40), "sonnet · read-only · session $0.31");
        let unpriced = SessionStatus { unpriced: true, session_cost: 0, next: Some((1, 2)), ..read_only };
        assert_eq!(plain(&unpriced, 80), "sonnet · read-only · 18.2k/200k 9% · cost unknown · cache 96%");
        let mixed = SessionStatus { session_cost: 310_000_000, ..unpriced };
        assert!(plain(&mixed, 100).contains("session $0.31 of $5 · unknown costs"), "{}", plain(&mixed, 100));
    }

    #[test]
    fn cost_of_a_child_counts_towards_the_prompt_that_started_it() {
        let body = |value: serde_json::Value| serde_json::from_value::<EventBody>(value).unwrap();
        let limits = |spend: u64| {
            serde_json::json!({"turns": 9, "tokens": 9, "spend": spend, "spawns": 9, "depth": 9,
                "duration_seconds": 9, "output": 9})
        };
        let usage = serde_json::to_value(Usage::default()).unwrap();
        let settled = |amount: u64| {
            body(serde_json::json!({"type": "settled", "turn": 1, "attempt": 0, "amount": amount, "usage": usage,
                "unknown_outcome": false, "overspent": 0}))
        };
        let started = |prompt: u64, spend: u64| {
            body(serde_json::json!({"type": "prompt_started", "prompt": prompt, "limits": limits(spend)}))
        };
        let spawned = |thread: &str| {
            body(serde_json::json!({"type": "child_spawned", "spawn": 1, "thread_id": thread, "directive": "kid",
                "spend": 400}))
        };
        let mut status = SessionStatus::default();
        status.follow(None, &started(1, 500));
        status.follow(None, &settled(10));
        status.follow(None, &spawned("kid-1"));
        status.follow(Some("kid-1"), &settled(30));
        assert_eq!((status.prompt_cost, status.session_cost, status.prompt_limit), (40, 40, 500));
        status.follow(None, &started(2, 510));
        status.follow(Some("kid-1"), &spawned("kid-2"));
        status.follow(Some("kid-1"), &settled(50));
        status.follow(Some("kid-2"), &settled(5));
        status.follow(None, &settled(7));
        assert_eq!((status.prompt_cost, status.session_cost, status.prompt_limit), (7, 102, 500));
    }

    #[test]
    fn tokens_are_shortened() {
        let shown: Vec<String> = [0, 999, 1000, 18_240, 200_000, 1_050_000].into_iter().map(format_tokens).collect();
        assert_eq!(shown, ["0", "999", "1k", "18.2k", "200k", "1M"]);
    }
}
