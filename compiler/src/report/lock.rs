//! The lock file, which is optional. For each plan, it contains the plan id and the hash of every file, hook, schema,
//! price and text of which the plan is made, so that a report can name each change.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use rye_grammar::ItemId;

use crate::compile::{Compilation, CompileRequest, compile};
use crate::hook::{PlanVerdict, PlannedHook};
use crate::item::Items;
use crate::plan::{Plan, hex};
use crate::report::closure::{NoPlan, compile_reachable};
use crate::report::project_checks::read_checks;
use crate::report::render::json::{PlanReport, render};
use crate::world::World;

/// The version of the lock file's format that this build writes. A lock file with a newer version is refused.
pub const LOCK_FORMAT: u32 = 1;

/// The lock of a project: a list of entries for each directive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lock {
    pub format: u32,
    /// Hashes of the assertions and of the levels of `check.yaml`, by name: `assertion ID`, `level CODE`,
    /// `lethal_trifecta`, `declassifying ID`, `deny_warnings`. Null in a lock that does not hold them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<BTreeMap<String, String>>,
    pub directives: BTreeMap<String, Vec<LockEntry>>,
}

/// A locked plan of a directive. Usually, a directive has one entry, whose plan was compiled without inputs. If inputs
/// decide the route, the directive has an entry for each context, with the inputs of an example call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LockEntry {
    /// The inputs of the plan; null if the plan was compiled without inputs.
    pub inputs: Option<Map<String, Value>>,
    pub plan_id: String,
    /// Hashes by part: `model`, `prices`, `tokenizer`, `system`, `message`, `capabilities`, `limits`, `hook ID`, `tool
    /// NAME`, …
    pub parts: BTreeMap<String, String>,
    /// Files and failed lookups. The key of a file contains its space (`knowledge a/b (project)`), and the value is the
    /// hash of the file. The key of a failed lookup contains no space (`knowledge a/b`), and the value is `not there`.
    pub manifest: BTreeMap<String, String>,
}

/// A difference from the lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// The directive; empty for an assertion or a level of the check.
    pub directive: String,
    /// A part of the plan (`model`, `tool NAME`), a file or failed lookup (`knowledge a/b (project)`), `the list of its
    /// plans`, `the plan` or `the directive`.
    pub what: String,
    /// The kind of difference: `changed`, `new` (not in the lock), `removed` (only in the lock) or `invalid` (a
    /// directive with errors, which has no plan).
    pub how: String,
}

/// The reason why a plan does not match the lock.
#[derive(Debug, Clone, PartialEq)]
pub enum LockMismatch {
    /// The lock has no entry for its directive.
    NotLocked,
    /// The directive has no plan now.
    NoPlan(NoPlan),
    /// A file of the plan, or the plan itself, differs from the entry in the lock.
    Drifted(Vec<Drift>),
}

/// Compiles a directive and returns the entries that it would have in the lock file, one for each of its plans.
///
/// # Errors
/// The directive has errors, or too many contexts (see `report::matrix`).
pub fn lock_entries(world: &dyn World, id: &ItemId) -> Result<Vec<LockEntry>, NoPlan> {
    Ok(entry_of(&compile_reachable(world, id)?))
}

/// Returns the current hashes of the settings in `assertions.yaml` and `check.yaml`.
pub fn hash_checks(world: &dyn World) -> BTreeMap<String, String> {
    let hash = |value: &Value| hex(&Sha256::digest(value.to_string()));
    read_checks(&Items::new(world)).into_iter().map(|(name, (value, _))| (name, hash(&value))).collect()
}

/// Lists the differences between the locked checks and the current ones. Empty if the lock holds no checks.
pub fn list_check_drift(lock: &Lock, now: &BTreeMap<String, String>) -> Vec<Drift> {
    let mut found = Vec::new();
    if let Some(locked) = &lock.checks {
        compare_hashes(locked, now, &mut |what, how| {
            found.push(Drift { directive: String::new(), what: what.to_owned(), how: how.to_owned() });
        });
    }
    found
}

/// Calls `tell` with the name of each part whose hash differs, and with `removed`, `changed` or `new`.
fn compare_hashes(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    tell: &mut dyn FnMut(&str, &str),
) {
    for (name, value) in before {
        match after.get(name) {
            None => tell(name, "removed"),
            Some(now) if now != value => tell(name, "changed"),
            Some(_) => {}
        }
    }
    for name in after.keys().filter(|name| !before.contains_key(*name)) {
        tell(name, "new");
    }
}

/// Returns the entries of the lock file for the plans of one directive.
pub fn entry_of(plans: &[Compilation]) -> Vec<LockEntry> {
    let entry = |one: &Compilation| lock_entry(&one.plan, &render(one, Vec::new()), one.request.inputs.clone());
    plans.iter().map(entry).collect()
}

/// Checks that the directive of a plan, compiled from the current files, matches the lock. Also checks that the chain,
/// hooks, capabilities and settings of `plan` match the current files, because `plan` may be a stored plan.
///
/// # Errors
/// The directive is not locked, does not compile now, or differs from the lock; or the plan differs from the files.
pub fn check_plan(world: &dyn World, lock: &Lock, plan: &Plan) -> Result<(), LockMismatch> {
    let directive = plan.directive.as_str();
    let locked = lock.directives.get(directive).ok_or(LockMismatch::NotLocked)?;
    let now = lock_entries(world, &plan.directive).map_err(LockMismatch::NoPlan)?;
    let mut found = list_drift(directive, locked, &now);
    if found.is_empty() {
        let request = CompileRequest::new(plan.directive.clone()).with_inputs(plan.interface.values.clone());
        let again = compile(world, &request);
        let Some(again) = again.value else { return Err(LockMismatch::NoPlan(NoPlan::Errors(again.diagnostics))) };
        let is_call = plan.prompt.body.is_empty() && !again.plan.prompt.body.is_empty();
        let files = if is_call { again.plan.for_call() } else { again.plan };
        let changed =
            |what: &str| Drift { directive: directive.to_owned(), what: what.to_owned(), how: "changed".into() };
        found.extend(differing_parts(plan, &files).into_iter().map(changed));
    }
    if found.is_empty() { Ok(()) } else { Err(LockMismatch::Drifted(found)) }
}

/// Returns the names of the parts in which a plan differs from `files`, the plan of the current files: `chain`,
/// `hooks`, `capabilities` or `settings`. The verdicts of hooks are not compared, because they depend on the inputs and
/// flags of the call. The capabilities are compared only if one of the plans declares permissions.
fn differing_parts(plan: &Plan, files: &Plan) -> Vec<&'static str> {
    let hooks = |plan: &Plan| -> Vec<PlannedHook> {
        let verdict = PlanVerdict::Fires;
        plan.hooks.iter().map(|hook| PlannedHook { verdict: verdict.clone(), ..hook.clone() }).collect()
    };
    let capabilities = if plan.capabilities.declared || files.capabilities.declared {
        plan.capabilities == files.capabilities
    } else {
        true
    };
    let same = [
        ("chain", plan.chain == files.chain),
        ("hooks", hooks(plan) == hooks(files)),
        ("capabilities", capabilities),
        ("settings", plan.settings == files.settings),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
}

fn lock_entry(plan: &Plan, report: &PlanReport, inputs: Option<Map<String, Value>>) -> LockEntry {
    let mut parts = BTreeMap::new();
    let mut put = |name: String, value: Value| {
        parts.insert(name, hex(&Sha256::digest(value.to_string())));
    };
    let json = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
    put("model".into(), Value::from(format!("{}/{}", report.model.provider, report.model.id)));
    put("prices".into(), json(serde_json::to_value(plan.model.prices)));
    put("connection".into(), plan.model.connection.clone());
    put("tokenizer".into(), plan.model.counted_by.as_str().into());
    put("system".into(), report.system.text.clone().into());
    put("message".into(), report.first_message.text.clone().into());
    put("continuation".into(), report.continued.text.clone().into());
    put("capabilities".into(), json(serde_json::to_value(&plan.capabilities)));
    put("limits".into(), json(serde_json::to_value(plan.limits)));
    if let Some(session) = plan.session_limits {
        put("session limits".into(), json(serde_json::to_value(session)));
    }
    put("interface".into(), json(serde_json::to_value(&plan.interface)));
    put("graph".into(), json(serde_json::to_value(&plan.graph)));
    for (name, value) in plan.settings.iter() {
        put(format!("settings {name}"), value.clone());
    }
    for hook in &plan.hooks {
        put(format!("hook {}", hook.id), json(serde_json::to_value(hook)));
    }
    for tool in &plan.palette {
        put(format!("tool {}", tool.name), json(serde_json::to_value(tool)));
    }
    let read = |read: &crate::plan::ManifestEntry| match (&read.space, &read.sha256) {
        (Some(space), Some(sha256)) => {
            (format!("{} {} ({})", read.kind.as_str(), read.id, space.as_str()), sha256.clone())
        }
        (_, _) => (format!("{} {}", read.kind.as_str(), read.id), "not there".to_owned()),
    };
    let context = plan
        .context_files
        .iter()
        .map(|read| (format!("context {} ({})", read.path, read.space.as_str()), read.sha256.clone()));
    let manifest = plan.manifest.iter().map(read).chain(context).collect();
    LockEntry { inputs, plan_id: report.plan_id.clone(), parts, manifest }
}

/// Lists the differences between the locked plans (`locked`) and the current plans (`now`) of a directive, each
/// difference once. Of each plan, the differences of files precede those of other parts. The list is empty if the plans
/// are equal byte for byte.
pub fn list_drift(directive: &str, locked: &[LockEntry], now: &[LockEntry]) -> Vec<Drift> {
    let mut found = Vec::new();
    let mut tell = |what: &str, how: &str| {
        let drift = Drift { directive: directive.to_owned(), what: what.to_owned(), how: how.to_owned() };
        if !found.contains(&drift) {
            found.push(drift);
        }
    };
    // Entries for different routes can have the same inputs (null), so their plan ids are compared too.
    let is_among = |one: &LockEntry, all: &[LockEntry]| {
        all.iter().any(|other| other.inputs == one.inputs && other.plan_id == one.plan_id)
    };
    for was in locked.iter().filter(|was| !is_among(was, now)) {
        let Some(is) = now.iter().find(|is| is.inputs == was.inputs && !is_among(is, locked)) else {
            tell("the list of the directive's plans", "changed");
            continue;
        };
        for (before, after) in [(&was.manifest, &is.manifest), (&was.parts, &is.parts)] {
            compare_hashes(before, after, &mut tell);
        }
    }
    if now.len() > locked.len() {
        tell("the list of the directive's plans", "changed");
    }
    let same = now.iter().map(|l| &l.plan_id).eq(locked.iter().map(|l| &l.plan_id));
    if found.is_empty() && !same {
        found.push(Drift { directive: directive.to_owned(), what: "the plan".into(), how: "changed".into() });
    }
    found
}
