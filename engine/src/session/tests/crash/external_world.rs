//! The world outside the engine: tools, models, users. Each effect appends a line to a file that survives every crash,
//! in two steps, so that a crash can come before, between and after them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use rye_compiler::compile::Compilation;
use rye_compiler::diagnostics::Checked;
use rye_compiler::plan::ApprovalOrigin;

use super::super::Lab;
use super::scenarios::CrashScenario;
use crate::BoxFuture;
use crate::context::{ApprovalHandler, ApprovalPolicy, ApprovalRequest, EngineContext};
use crate::engine::Engine;
use crate::event::{Approval, ControlMessage};
use crate::exchange::{CallError, FailedStage};
use crate::keys::KeyFolder;
use crate::store::{Disk, mailbox};
use crate::thread_id::ThreadId;
use crate::tool::{Invocation, Tool, ToolOutcome};

pub const LOG: &str = "outside.log";

/// The log of effects.
#[derive(Debug, Clone)]
pub struct Outside {
    /// The disk of the log, which never skips a sync.
    disk: Arc<dyn Disk>,
}

impl Outside {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk }
    }

    /// Creates the log before the first possible fault.
    pub fn prepare(&self) {
        self.disk.create(Path::new(LOG), b"").unwrap();
        self.disk.sync(Path::new(LOG)).unwrap();
        self.disk.sync_dir(Path::new("")).unwrap();
    }

    /// Logs an effect.
    pub fn happens(&self, what: &str) -> io::Result<()> {
        // Starts a new line, because an earlier line may be truncated.
        self.disk.append_volatile(Path::new(LOG), format!("\n{what}.\n").as_bytes())?;
        self.disk.sync(Path::new(LOG))
    }

    /// Returns the effects so far, in order.
    pub fn lines(&self) -> Vec<String> {
        let bytes = self.disk.read(Path::new(LOG)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        // Skips truncated lines.
        let whole = text.lines().filter(|line| !line.contains('\0')).filter_map(|line| line.strip_suffix('.'));
        whole.map(str::to_owned).collect()
    }
}

/// The behavior of a scenario's tool.
#[derive(Debug, Clone, Copy)]
enum ScenarioToolKind {
    /// Logs its name.
    Note,
    /// Logs its name and returns more than fits into a conversation.
    Long,
    /// Cancels the thread as another process does.
    Cancel,
}

struct ScenarioTool {
    act: ScenarioToolKind,
    outside: Outside,
    engine: Arc<OnceLock<Weak<EngineContext>>>,
}

impl Tool for ScenarioTool {
    fn run(&self, invocation: Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            let name = invocation.parameters["name"].as_str().unwrap_or_default().to_owned();
            let tool = invocation.item_id.as_str().rsplit('/').next().unwrap_or_default();
            let done = self.outside.happens(&format!("{tool} {name}"));
            let done = done.and_then(|()| match self.act {
                ScenarioToolKind::Note => Ok(format!("{tool} {name} is done")),
                ScenarioToolKind::Long => Ok(format!("{name} goes on and on\n").repeat(4_000)),
                ScenarioToolKind::Cancel => self.cancel(&invocation).map(|()| "cancelled".to_owned()),
            });
            done.map_or_else(|error| ToolOutcome::error(error.to_string()), ToolOutcome::ok)
        })
    }
}

impl ScenarioTool {
    /// Sends a message to the inbox, where the watcher of this process finds it.
    fn cancel(&self, invocation: &Invocation) -> io::Result<()> {
        let thread = ThreadId::parse(&invocation.thread_id).unwrap();
        let engine = self.engine.get().and_then(Weak::upgrade).ok_or_else(|| io::Error::other("no engine"))?;
        let body = serde_json::to_value(ControlMessage::Cancel).unwrap();
        let id = mailbox::send(&*engine.disk, &thread, &body, 5).map_err(io::Error::other)?;
        self.outside.happens("message")?;
        if let Some(running) = engine.running(&thread) {
            running.control.deliver(id, ControlMessage::Cancel);
        }
        Ok(())
    }
}

/// An approver that allows every call and suspends at limits.
struct ScenarioApprover(Outside);

impl ApprovalHandler for ScenarioApprover {
    fn ask<'a>(&'a self, request: ApprovalRequest<'a>) -> BoxFuture<'a, Approval> {
        Box::pin(async move {
            match (self.0.happens("asked"), request.origin) {
                // Without power nothing of an answer persists, and the next disk operation ends the process.
                (Err(_), ApprovalOrigin::Call | ApprovalOrigin::Limit) => Approval::Refused,
                (Ok(()), ApprovalOrigin::Call) => Approval::Approved,
                (Ok(()), ApprovalOrigin::Limit) => Approval::Suspended,
            }
        })
    }
}

fn item(name: &str, flags: &str) -> String {
    format!(
        "version: 1.0.0\ncategory: test\ndescription: It {name}s.\nkind: builtin\nbuiltin: test_{name}\n{flags}\
         parameters: {{ type: object, properties: {{ name: {{ type: string }} }} }}\n"
    )
}

/// The tools of the scenarios, by name. `mark` and `cancel` are not idempotent.
const TOOLS: [(&str, &str, ScenarioToolKind); 5] = [
    ("mark", "", ScenarioToolKind::Note),
    ("note", "idempotent: true\n", ScenarioToolKind::Note),
    ("look", "idempotent: true\nparallel: true\n", ScenarioToolKind::Note),
    ("long", "idempotent: true\n", ScenarioToolKind::Long),
    ("cancel", "", ScenarioToolKind::Cancel),
];

/// The tools that recovery must not run again, under the names that the model calls.
pub const ONCE: [&str; 2] = ["test_mark", "test_cancel"];

/// Creates the project of a scenario, in a new folder or in `elsewhere`, with a model that replies as the scenario
/// defines.
pub fn lab(scenario: &'static CrashScenario, disk: &Arc<dyn Disk>, elsewhere: Option<PathBuf>) -> Lab {
    let (reply, outside) = (scenario.reply, Outside::new(Arc::clone(disk)));
    let mut lab = Lab::new(move |request| {
        let cue = &request.cue;
        let (turn, attempt) = (cue.turn.unwrap(), cue.attempt);
        let asked = outside.happens(&format!("ask {} {turn} {attempt}", cue.directive));
        asked.map_err(|error| CallError::new(FailedStage::Connect, error.to_string()))?;
        reply(request)
    });
    lab.elsewhere = elsewhere;
    if !scenario.keyless {
        let keys = KeyFolder::of_user_space(&lab.path().join("home"));
        keys.load_or_generate().unwrap();
        lab.keys = Some(keys);
    }
    if let Some(usage) = scenario.usage {
        Arc::get_mut(&mut lab.model).unwrap().usage = usage;
    }
    for (name, flags, _) in TOOLS {
        lab.write(&format!(".ai/tools/test/{name}.yaml"), &item(name, flags));
    }
    (scenario.prepare)(&lab);
    lab
}

/// Opens the engine of one process.
pub fn open(scenario: &CrashScenario, lab: &Lab, outside: &Outside, disk: &Arc<dyn Disk>) -> Result<Engine, String> {
    let mut options = lab.options();
    options.disk = Some(Arc::clone(disk));
    let (compile, name) = (Arc::clone(&options.compile), scenario.name);
    options.compile = Arc::new(move |world, request| {
        let key = (name, format!("{request:?}"));
        if let Some(known) = CHILDREN.lock().unwrap().get(&key) {
            return known.clone();
        }
        let made = compile(world, request);
        CHILDREN.lock().unwrap().insert(key, made.clone());
        made
    });
    options.providers = Arc::new(Arc::clone(&lab.model));
    let known = Arc::new(OnceLock::new());
    for (name, _, act) in TOOLS {
        let (outside, engine) = (outside.clone(), Arc::clone(&known));
        options.tools.add(&format!("test_{name}"), move |_| {
            Arc::new(ScenarioTool { act, outside: outside.clone(), engine: Arc::clone(&engine) })
        });
    }
    if scenario.attended {
        options.approvals = ApprovalPolicy::Ask(Arc::new(ScenarioApprover(outside.clone())));
    }
    let engine = Engine::open(&lab.path(), options).map_err(|error| error.to_string())?;
    known.set(Arc::downgrade(&engine.inner)).ok();
    Ok(engine)
}

/// Compiled children by scenario and request. The files of a scenario do not change.
static CHILDREN: Mutex<BTreeMap<(&str, String), Checked<Compilation>>> = Mutex::new(BTreeMap::new());

/// The compiled plan of each scenario. A plan contains no path, so all projects share it.
pub static PLANS: Mutex<BTreeMap<&'static str, Arc<Compilation>>> = Mutex::new(BTreeMap::new());
