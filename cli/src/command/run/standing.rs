//! What a thread that goes on may do, said before it does: its record gives it that, and no file of the project changes it
//! any more.

use std::path::Path;

use rye_compiler::approvals::{Unattended, asked};
use rye_compiler::item::Items;
use rye_compiler::plan::Grant;
use rye_compiler::wall::{WallKind, of_plan};
use rye_compiler::world::World;
use rye_engine::thread_id::ThreadId;
use rye_engine::threads::Threads;

use super::ask::forewarning;
use crate::view::short;

/// Grants and walls that are told.
const MOST: usize = 12;
/// Characters of one of them: a record may be anybody's.
const LONGEST: usize = 300;

/// Lines for people: what it was granted, which walls its tools have now, and what becomes of what nobody has acknowledged
/// where nobody can be asked (`None`: somebody can). Nothing of a record that cannot be read: who takes it up says why.
pub fn told(thread: &ThreadId, project: &Path, world: &dyn World, unattended: Option<Unattended>) -> Option<String> {
    let recorded = Threads::open(project).ok()?.parent(thread).ok()??;
    let plan = recorded.plan();
    let grants: Vec<String> = plan.capabilities.grants.iter().map(granted).collect();
    let may = if grants.is_empty() { "nothing".to_owned() } else { listed(&grants, ", ") };
    let mut lines = vec![format!("`{thread}` goes on with what it was granted: {may}")];
    let items = Items::new(world);
    let walls: Vec<String> = of_plan(&items, plan)
        .iter()
        .filter(|wall| matches!(wall.kind, WallKind::Process | WallKind::Requests | WallKind::None))
        .map(|wall| format!("  {}", short(&format!("{}: {wall}", wall.name), LONGEST)))
        .collect();
    if !walls.is_empty() {
        lines.push(listed(&walls, "\n"));
    }
    lines.extend(unattended.and_then(|unattended| forewarning(&asked(&items, plan), unattended)));
    Some(lines.join("\n"))
}

fn granted(grant: &Grant) -> String {
    let needs = grant.needs();
    let text = if needs.is_empty() { format!("`{}`", grant.pattern) } else { format!("`{}` ({needs})", grant.pattern) };
    short(&text, LONGEST)
}

fn listed(all: &[String], between: &str) -> String {
    let shown = all.iter().take(MOST).map(String::as_str).collect::<Vec<_>>().join(between);
    match all.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown}{between}and {more} more"),
    }
}
