//! The scenarios to interrupt: files, the model's replies at each turn, and the user's actions after a thread ends.

use serde_json::{Value, json};

use super::super::{Lab, calls, permit, reply_text};
use crate::event::ControlMessage;
use crate::exchange::{CallError, CutStream, FailedStage, Request, Usage};
use crate::message::ContentBlock;
use crate::thread::Status;

/// A run to interrupt. Its root directive is `test/root`.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a scenario")]
pub struct CrashScenario {
    pub name: &'static str,
    pub prepare: fn(&Lab),
    pub reply: fn(&Request) -> Result<Vec<ContentBlock>, CallError>,
    /// The usage of every reply; a small default if `None`.
    pub usage: Option<Usage>,
    /// True if the user has no key: each process signs with a temporary key of its own.
    pub keyless: bool,
    /// True if an approver is at the terminal.
    pub attended: bool,
    /// The messages with which the user resumes an ended thread, in order.
    pub resumes: &'static [&'static str],
    /// The control messages that the user sends to a suspended thread.
    pub answers: fn() -> Vec<ControlMessage>,
    /// The end status of the last thread.
    pub ends: Status,
    /// True if the scenario has children, which makes its runs long.
    pub is_tree: bool,
    /// True if the timing decides whether a child outlives its parent and moves to another account.
    pub survivors: bool,
    /// True if the run ends when its money is spent. A cut call then ends the run earlier.
    pub spends_all: bool,
    /// Number of model calls that the server cuts.
    pub cuts: usize,
}

impl CrashScenario {
    const fn tree(self) -> Self {
        Self { is_tree: true, ..self }
    }

    const fn keyless(self) -> Self {
        Self { keyless: true, ..self }
    }

    const fn new(
        name: &'static str,
        prepare: fn(&Lab),
        reply: fn(&Request) -> Result<Vec<ContentBlock>, CallError>,
    ) -> Self {
        Self {
            name,
            prepare,
            reply,
            usage: None,
            keyless: false,
            attended: false,
            resumes: &[],
            answers: Vec::new,
            ends: Status::Completed,
            is_tree: false,
            survivors: false,
            spends_all: false,
            cuts: 0,
        }
    }
}

fn tool(name: &str, what: &str) -> (String, Value) {
    (format!("test_{name}"), json!({"name": what}))
}

fn all(list: &[(String, Value)]) -> Vec<ContentBlock> {
    let list: Vec<(&str, Value)> = list.iter().map(|(name, input)| (name.as_str(), input.clone())).collect();
    calls(&list)
}

fn child(name: &str) -> (String, Value) {
    ("rye_execute".into(), json!({"item_type": "directive", "item_id": format!("test/{name}")}))
}

const TREE: &str = "<permissions><execute><directive>test.*</directive><tool>test.*</tool><tool>rye.agent.*</tool></execute></permissions>";

/// Returns the limits and grants of a parent.
fn tree(limits: &str) -> String {
    format!("<limits {limits}/>{TREE}")
}

/// Sequential calls: idempotent calls, a call that must not be repeated, a call with a long result, and a call that
/// writes the thread's store.
pub static TOOLS: CrashScenario = CrashScenario::new(
    "tools",
    |lab| lab.directive("root", &permit(&["test.*", "rye.agent.threads.state"]), ""),
    |request| {
        let state = ("rye_agent_threads_state".to_owned(), json!({"operation": "set", "key": "seen", "value": 1}));
        Ok(match request.cue.turn.unwrap() {
            0 => all(&[tool("note", "a"), tool("mark", "b"), tool("mark", "c")]),
            1 => all(&[tool("long", "d"), state]),
            2 => all(&[tool("mark", "e")]),
            _ => reply_text("the end"),
        })
    },
)
.keyless();

/// Parallel calls, before and after a call that runs alone.
pub static PARALLEL: CrashScenario = CrashScenario::new(
    "parallel",
    |lab| lab.directive("root", &permit(&["test.*"]), ""),
    |request| {
        Ok(match request.cue.turn.unwrap() {
            0 => all(&[tool("look", "a"), tool("look", "b"), tool("look", "c"), tool("mark", "d"), tool("look", "e")]),
            1 => all(&[tool("look", "f"), tool("look", "g")]),
            _ => reply_text("the end"),
        })
    },
);

/// Two parallel children, one with a child of its own; then the same children again. Each child has enough money for
/// two cut calls, which count at their worst case.
pub static CHILDREN: CrashScenario = CrashScenario::new(
    "children",
    |lab| {
        lab.directive("root", &tree("spend=\"1\""), "");
        lab.directive("one", &tree("spend=\"0.4\""), "");
        lab.directive("two", &tree("spend=\"0.2\""), "");
        lab.directive("three", &tree("spend=\"0.2\""), "");
    },
    |request| {
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/root", 0) => all(&[child("one"), child("two")]),
            ("test/root", 1) => all(&[child("one")]),
            ("test/one", 0) => all(&[child("three")]),
            ("test/two" | "test/three", 0) => all(&[tool("mark", "x")]),
            _ => reply_text("the end"),
        })
    },
)
.tree()
.keyless();

/// Detached children, and a parent that continues its own work meanwhile.
pub static ASYNC: CrashScenario = CrashScenario::new(
    "async",
    |lab| {
        lab.directive("root", &tree("spend=\"1\""), "");
        lab.directive("one", &tree("spend=\"0.2\""), "");
        lab.directive("two", &tree("spend=\"0.1\""), "");
    },
    |request| {
        let start = |name: &str| {
            let (call, mut input) = child(name);
            input["async"] = true.into();
            (call, input)
        };
        Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/root", 0) => all(&[start("one"), start("two")]),
            ("test/root", 1) => all(&[tool("mark", "a")]),
            ("test/one" | "test/two", 0) => all(&[tool("note", "b")]),
            _ => reply_text("the end"),
        })
    },
)
.tree();

/// Detached tool runs: one must not be repeated, one has a long result.
pub static APART: CrashScenario = CrashScenario::new(
    "apart",
    |lab| lab.directive("root", &permit(&["test.*"]), ""),
    |request| {
        let start = |name: &str, what: &str| {
            let input = json!({"item_type": "tool", "item_id": format!("test/{name}"), "parameters": {"name": what},
                               "async": true});
            ("rye_execute".to_owned(), input)
        };
        Ok(match request.cue.turn.unwrap() {
            0 => all(&[start("mark", "a"), start("note", "b")]),
            1 => all(&[tool("mark", "c"), start("long", "d")]),
            _ => reply_text("the end"),
        })
    },
)
.tree();

/// Detached children, one with a detached child of its own, which may outlive both of its ancestors.
pub static SURVIVOR: CrashScenario = CrashScenario {
    survivors: true,
    ..CrashScenario::new("survivor", ASYNC.prepare, |request| {
        let (call, mut input) = child("two");
        input["async"] = true.into();
        match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
            ("test/one", 0) => Ok(all(&[(call, input)])),
            _ => (ASYNC.reply)(request),
        }
    })
    .tree()
};

const FULL: &str = "continuation: { trigger_threshold: 0.0000001 }\n";

/// A root that fills its context and starts a child that fills its own context. Each continues in a new thread.
pub static HANDOFF: CrashScenario = CrashScenario::new(
    "handoff",
    |lab| {
        lab.write(".ai/config/agent/coordination.yaml", FULL);
        lab.directive("root", &tree("spend=\"1\" turns=\"30\""), "");
        lab.directive("one", &tree("spend=\"0.2\" turns=\"20\""), "");
    },
    |request| {
        let fresh = !serde_json::to_string(&request.turns).unwrap().contains("Continue where you left off");
        Ok(match (request.cue.directive.as_str(), fresh) {
            ("test/root", true) => all(&[child("one")]),
            ("test/one", true) => all(&[tool("mark", "a")]),
            _ => reply_text("the end"),
        })
    },
)
.tree();

fn overloaded(usage: Option<Usage>) -> CallError {
    let error = CallError::new(FailedStage::Status, "overloaded");
    CallError { status: Some(529), usage, ..error }
}

/// Failing attempts, one of them billed, before each of the first two turns.
pub static RETRY: CrashScenario = CrashScenario::new(
    "retry",
    |lab| lab.directive("root", &permit(&["test.*"]), ""),
    |request| {
        let billed = Usage { input: 40, output: 2, cache_read: 0, cache_write: 0 };
        Ok(match (request.cue.turn.unwrap(), request.cue.attempt) {
            (0, 0) => return Err(overloaded(None)),
            (0 | 1, 1) => return Err(overloaded(Some(billed))),
            (1, 0) => return Err(CallError::new(FailedStage::Truncated, "cut")),
            (0, _) => all(&[tool("mark", "a")]),
            _ => reply_text("the end"),
        })
    },
);

/// Streams that the server cuts: one before its first byte, one after its first reported usage.
pub static CUT: CrashScenario = CrashScenario {
    cuts: 2,
    ..CrashScenario::new(
        "cut",
        |lab| lab.directive("root", &format!("<limits spend=\"2\"/>{}", permit(&["test.*"])), ""),
        |request| {
            let cut = |received, usage| {
                let cut = Some(CutStream { sent: 100, received });
                Err(CallError { usage, cut, ..CallError::new(FailedStage::Truncated, "cut") })
            };
            let started = Usage { input: 40, output: 1, cache_read: 0, cache_write: 0 };
            Ok(match (request.cue.turn.unwrap(), request.cue.attempt) {
                (0, 0) => return cut(0, None),
                (1, 0) => return cut(700, Some(started)),
                (0, _) => all(&[tool("mark", "a")]),
                _ => reply_text("the end"),
            })
        },
    )
};

/// A detached child that fills its context, and may be handed off after its parent has ended.
pub static SURVIVOR_HANDOFF: CrashScenario = CrashScenario {
    survivors: true,
    ..CrashScenario::new(
        "survivor-handoff",
        |lab| {
            lab.write(".ai/config/agent/coordination.yaml", "continuation: { trigger_threshold: 0.02 }\n");
            lab.directive("root", &tree("spend=\"1\""), "");
            lab.directive("one", &tree("spend=\"0.4\" turns=\"20\""), "");
        },
        |request| {
            let (call, mut input) = child("one");
            input["async"] = true.into();
            let fresh = !serde_json::to_string(&request.turns).unwrap().contains("Continue where you left off");
            Ok(match (request.cue.directive.as_str(), request.cue.turn.unwrap()) {
                ("test/root", 0) => all(&[(call, input)]),
                ("test/one", 0) if fresh => all(&[tool("long", "a")]),
                _ => reply_text("the end"),
            })
        },
    )
    .tree()
};

/// A call that a user approves, and a limit that waits for the user.
pub static APPROVAL: CrashScenario = CrashScenario {
    attended: true,
    answers: || {
        vec![
            ControlMessage::Raise { limit: "turns".into(), value: 9 },
            ControlMessage::Approve { yes: true, question: None, message: None, raises: false },
        ]
    },
    ..CrashScenario::new(
        "approval",
        |lab| {
            let hook = "hooks:\n  - { id: ask, event: limit, action: { escalate: {} } }\n";
            lab.write(".ai/config/agent/hooks.yaml", hook);
            lab.directive("root", &format!("<limits turns=\"2\"/>{}", permit(&["test.*"])), "");
        },
        |request| {
            Ok(match request.cue.turn.unwrap() {
                0 => all(&[tool("mark", "a"), tool("note", "b")]),
                1 => all(&[tool("note", "c")]),
                2 => all(&[tool("mark", "d")]),
                _ => reply_text("the end"),
            })
        },
    )
};

/// A thread that another process cancels during a call.
pub static CANCEL: CrashScenario = CrashScenario {
    ends: Status::Cancelled,
    ..CrashScenario::new(
        "cancel",
        |lab| lab.directive("root", &permit(&["test.*"]), ""),
        |request| {
            Ok(match request.cue.turn.unwrap() {
                0 => all(&[tool("note", "a")]),
                1 => all(&[tool("cancel", "b"), tool("mark", "c")]),
                _ => reply_text("the end"),
            })
        },
    )
};

/// Replies that each cost a quarter of the money: the fourth call is unaffordable.
pub static BUDGET: CrashScenario = CrashScenario {
    usage: Some(Usage { input: 100, output: 1_000, cache_read: 0, cache_write: 0 }),
    ends: Status::Error,
    spends_all: true,
    ..CrashScenario::new(
        "budget",
        |lab| lab.directive("root", &format!("<limits spend=\"0.02\"/>{}", permit(&["test.*"])), ""),
        |request| Ok(all(&[tool("mark", &request.cue.turn.unwrap().to_string())])),
    )
};

/// A thread that is resumed twice after its end.
pub static RESUMED: CrashScenario = CrashScenario {
    resumes: &["and then?", "and now?"],
    ..CrashScenario::new(
        "resumed",
        |lab| lab.directive("root", &permit(&["test.*"]), ""),
        |request| {
            let turns_json = serde_json::to_string(&request.turns).unwrap();
            let time = usize::from(turns_json.contains("and then?")) + usize::from(turns_json.contains("and now?"));
            let begins = matches!(request.cue.turn, Some(0));
            Ok(if begins { all(&[tool("mark", &time.to_string())]) } else { reply_text("the end") })
        },
    )
};
