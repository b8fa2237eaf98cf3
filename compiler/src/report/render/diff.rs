//! Renders a comparison of two plans: lines that are marked as wider or narrower for a terminal, Markdown for a pull
//! request.

use std::fmt::Write as _;

use serde_json::Value;

use super::json::VerdictReport;
use super::table::group_thousands;
use crate::diagnostics::sanitize;
use crate::plan::source::SourceReport;
use crate::report::diff::{
    BeforeAfter, CapabilityChange, ChangeArea, Direction, HookChange, LimitChange, PartChange, PlanChange, PlanDiff,
};

/// The kind of a line, which determines its color. The printer chooses the colors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffTone {
    Heading,
    Plain,
    /// The change allows more permissions or spending than before.
    Wider,
    Narrower,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffLine {
    pub tone: DiffTone,
    pub text: String,
}

/// Renders a comparison of two plans as lines: a title, and each section that differs.
pub fn lines(diff: &PlanDiff) -> Vec<DiffLine> {
    let mut out = Vec::new();
    let mut line = |tone, text: String| out.push(DiffLine { tone, text: sanitize(&text, "\u{fffd}").into_owned() });
    line(DiffTone::Heading, format_title(diff));
    if diff.is_empty() {
        return out;
    }
    if diff.before != diff.after {
        line(DiffTone::Plain, format!("  context {}", format_context(diff)));
        line(DiffTone::Plain, format!("  {}", format_prefix(diff)));
        for cost in format_costs(diff) {
            line(DiffTone::Plain, format!("  {cost}"));
        }
    }
    if !diff.capabilities.is_empty() {
        line(DiffTone::Heading, "Capabilities".into());
    }
    for change in &diff.capabilities {
        let (tone, sign) = sign(change.direction);
        line(tone, format!("  {sign} {}{}", format_capability(change), format_location(change.source.as_ref())));
    }
    if !diff.limits.is_empty() {
        line(DiffTone::Heading, "Limits".into());
    }
    for change in &diff.limits {
        let tone = if change.raised { DiffTone::Wider } else { DiffTone::Narrower };
        line(tone, format!("  {}{}", format_limit(change), format_location(change.source.as_ref())));
    }
    if !diff.hooks.is_empty() {
        line(DiffTone::Heading, "Hooks".into());
    }
    for change in &diff.hooks {
        let (tone, sign) = sign(change.direction);
        line(tone, format!("  {sign} {}{}", format_hook(change), format_location(change.source.as_ref())));
    }
    let mut area: Option<ChangeArea> = None;
    for change in &diff.changes {
        if area != Some(change.area) {
            line(DiffTone::Heading, change.area.heading().into());
            area = Some(change.area);
        }
        let (tone, sign) = sign(change.direction);
        line(tone, format!("  {sign} {}{}", render_change(change), format_location(change.source.as_ref())));
    }
    if !diff.parts.is_empty() {
        line(DiffTone::Heading, "Context (neutral: changes the sent text, not the permissions)".into());
    }
    for part in diff.parts.iter().filter(|part| !is_as_long(part)) {
        let text = format!("  {} {} {}", format_tokens(part.before, part.after), part.place, part.id);
        line(DiffTone::Plain, format!("{text}, {}{}", part.via, format_location(part.source.as_ref())));
    }
    for (part, text) in reworded(diff, str::to_owned) {
        line(DiffTone::Plain, format!("  reworded, same length: {text}{}", format_location(part.source.as_ref())));
    }
    for start in &diff.starts {
        let below = lines(start);
        out.extend(below.into_iter().map(|line| match line.tone {
            DiffTone::Heading if line.text == format_title(start) => {
                DiffLine { text: format!("can start {}", line.text), ..line }
            }
            DiffTone::Heading | DiffTone::Plain | DiffTone::Wider | DiffTone::Narrower => line,
        }));
    }
    out
}

/// Renders the change of a hook, with the direction of the change (`narrowed`, `widened`) first.
fn format_hook(change: &HookChange) -> String {
    let newly = if change.newly_reachable { ", newly reachable" } else { "" };
    let (before, after) = (format_verdict(change.before), format_verdict(change.after));
    let values = if before == after { before.to_owned() } else { format!("{before} → {after}") };
    let why = if change.why.is_empty() { String::new() } else { format!(": {}", change.why) };
    format!("{} {} {}: {values}{newly}{why}", change.direction.as_str(), change.event, change.id)
}

/// Renders a change, with the direction of the change (`narrowed`, `widened`) first.
fn render_change(change: &PlanChange) -> String {
    format!("{} {}", change.direction.as_str(), change.what)
}

/// Returns true if the token count of a changed part is equal before and after the change.
fn is_as_long(part: &PartChange) -> bool {
    part.before == part.after
}

/// Lists the parts of the prompt whose text changed but whose token count did not. Each part is listed once, with a
/// text that holds its id and all its locations. `shown` formats the id.
fn reworded(diff: &PlanDiff, shown: impl Fn(&str) -> String) -> Vec<(&PartChange, String)> {
    let mut all: Vec<(&PartChange, Vec<&str>)> = Vec::new();
    for part in diff.parts.iter().filter(|part| is_as_long(part)) {
        match all.iter_mut().find(|(known, _)| known.id == part.id) {
            Some((_, places)) if places.contains(&part.place.as_str()) => {}
            Some((_, places)) => places.push(&part.place),
            None => all.push((part, vec![&part.place])),
        }
    }
    all.into_iter().map(|(part, places)| (part, format!("{} ({})", shown(&part.id), places.join(", ")))).collect()
}

/// Returns the example of a change; `None` if there is no example, or if it equals the pattern itself.
fn example(change: &CapabilityChange) -> Option<&String> {
    change.example.as_ref().filter(|example| **example != change.what)
}

/// Renders Markdown for a pull request: a verdict, a table of costs, then the changes.
pub fn format_markdown(diff: &PlanDiff) -> String {
    let mut out = format!("### `{}`\n\n", format_code(&diff.directive));
    if diff.is_empty() {
        out.push_str("The plans are identical.\n");
        return out;
    }
    write_summary(&mut out, diff);
    let prefix = format_prefix(diff);
    writeln!(out, "\n{prefix}").ok();
    let other_words = reworded(diff, |id| format!("`{}`", format_code(id)));
    let other_words: Vec<String> = other_words.into_iter().map(|(_, text)| text).collect();
    let in_other_words =
        (!other_words.is_empty()).then(|| format!("- reworded, same length: {}", other_words.join(", ")));
    let mut section = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            write!(out, "\n**{title}**\n\n{}\n", lines.join("\n")).ok();
        }
    };
    section(
        "Capabilities",
        diff.capabilities
            .iter()
            .map(|change| {
                let mark = direction_mark(change.direction);
                let example =
                    example(change).map(|e| format!(", for example `{}`", format_code(e))).unwrap_or_default();
                format!("- {mark} `{}`{example} ({})", format_code(&change.what), format_code(&change.by))
            })
            .collect(),
    );
    section(
        "Hooks",
        diff.hooks
            .iter()
            .map(|hook| {
                let newly = if hook.newly_reachable { " **newly reachable**" } else { "" };
                let (before, after) = (format_verdict(hook.before), format_verdict(hook.after));
                let (mark, why) = (direction_mark(hook.direction), format_code(&hook.why));
                let place = format_code(&format_location(hook.source.as_ref()));
                format!(
                    "- {mark} `{}` on `{}`: {before} → {after}{newly}; {why}{place}",
                    format_code(&hook.id),
                    format_code(&hook.event)
                )
            })
            .collect(),
    );
    section(
        "Everything else",
        diff.changes
            .iter()
            .map(|change| {
                let place = format_code(&format_location(change.source.as_ref()));
                format!(
                    "- {} {}: `{}`{place}",
                    direction_mark(change.direction),
                    change.area.heading(),
                    format_code(&change.what)
                )
            })
            .collect(),
    );
    section(
        "Context",
        diff.parts
            .iter()
            .filter(|part| !is_as_long(part))
            .map(|part| {
                format!(
                    "- {} `{}` ({}, {})",
                    format_tokens(part.before, part.after),
                    format_code(&part.id),
                    part.place,
                    format_code(&part.via)
                )
            })
            .chain(in_other_words)
            .collect(),
    );
    for start in &diff.starts {
        write!(out, "\nIt can start:\n\n#{}", format_markdown(start)).ok();
    }
    out
}

/// Writes the verdict and the table of tokens, costs, limits and model.
fn write_summary(out: &mut String, diff: &PlanDiff) {
    let verdict_line = match (&diff.before, &diff.after) {
        (None, _) => "🆕 **new directive**",
        (_, None) => "**removed**",
        _ if diff.widened => "🔴 **widened**: the directive may do or spend more than before",
        _ => "not widened",
    };
    write!(out, "{verdict_line}\n\n| | before | after |\n|---|--:|--:|\n").ok();
    let mut row = |name: &str, before: String, after: String| {
        writeln!(out, "| {name} | {before} | {after} |").ok();
    };
    row("context, tokens", group_thousands(diff.tokens.before), group_thousands(diff.tokens.after));
    for (name, pair) in
        [("first request", &diff.cost.first), ("typical run", &diff.cost.typical), ("worst case", &diff.cost.worst)]
    {
        row(name, dollars(pair.before.as_ref()), dollars(pair.after.as_ref()));
    }
    for change in &diff.limits {
        let mark = if change.raised { "🔴 " } else { "" };
        row(
            &format!("{mark}limit `{}`", format_code(&change.name)),
            format_amount(&change.name, change.before.as_ref()),
            format_amount(&change.name, change.after.as_ref()),
        );
    }
    if let Some(BeforeAfter { before, after }) = &diff.model {
        row("model", format!("`{}`", format_code(before)), format!("`{}`", format_code(after)));
    }
}

fn direction_mark(direction: Direction) -> &'static str {
    match direction {
        Direction::Widened => "🔴 widened",
        Direction::Unknown => "🔴 unknown",
        Direction::Narrowed => "🟢 narrowed",
        Direction::Neutral => "⚪ neutral",
    }
}

/// Escapes a text for a code span inside a table.
fn format_code(text: &str) -> String {
    sanitize(text, "\u{fffd}").replace('`', "'").replace('|', "\\|")
}

fn format_title(diff: &PlanDiff) -> String {
    let short = |id: &str| id.get(..12).unwrap_or(id).to_owned();
    let what = match (&diff.before, &diff.after) {
        (None, None) => "in neither".to_owned(),
        (None, Some(after)) => format!("new, {}", short(after)),
        (Some(before), None) => format!("gone, was {}", short(before)),
        (Some(before), Some(after)) if before == after && diff.is_empty() => {
            format!("identical plan, {}", short(after))
        }
        (Some(before), Some(after)) if before == after => format!("same plan id, {}", short(after)),
        (Some(before), Some(after)) => format!("{} → {}", short(before), short(after)),
    };
    format!("{}  ·  {what}", diff.directive)
}

fn format_context(diff: &PlanDiff) -> String {
    let BeforeAfter { before, after } = diff.tokens;
    let sign = if after >= before { '+' } else { '-' };
    format!(
        "{} → {} tokens ({sign}{})",
        group_thousands(before),
        group_thousands(after),
        group_thousands(after.abs_diff(before))
    )
}

fn format_prefix(diff: &PlanDiff) -> String {
    let prefix = &diff.prefix;
    let kept = format!(
        "cache prefix: {} of {} tokens unchanged",
        group_thousands(prefix.unchanged),
        group_thousands(prefix.of)
    );
    match &prefix.broken_by {
        Some(part) => format!("{kept}, up to `{}`", format_code(part)),
        None => kept,
    }
}

fn format_costs(diff: &PlanDiff) -> Vec<String> {
    let all =
        [("first request", &diff.cost.first), ("typical run", &diff.cost.typical), ("worst case", &diff.cost.worst)];
    let changed = all.into_iter().filter(|(_, pair)| pair.before != pair.after);
    changed
        .map(|(name, pair)| format!("{name} {} → {}", dollars(pair.before.as_ref()), dollars(pair.after.as_ref())))
        .collect()
}

fn dollars(value: Option<&Value>) -> String {
    value.map_or_else(|| "–".to_owned(), super::json::dollars)
}

fn sign(direction: Direction) -> (DiffTone, char) {
    match direction {
        Direction::Widened => (DiffTone::Wider, '+'),
        Direction::Unknown => (DiffTone::Wider, '?'),
        Direction::Narrowed => (DiffTone::Narrower, '-'),
        Direction::Neutral => (DiffTone::Plain, '~'),
    }
}

fn format_capability(change: &CapabilityChange) -> String {
    let example = example(change).map(|e| format!(", for example {e}")).unwrap_or_default();
    format!("{} {}{example} ({})", change.direction.as_str(), change.what, change.by)
}

fn format_limit(change: &LimitChange) -> String {
    let word = if change.raised { "raised" } else { "lowered" };
    let shown = |value: &Option<Value>| format_amount(&change.name, value.as_ref());
    format!("{} {word} {} → {}", change.name, shown(&change.before), shown(&change.after))
}

/// Formats the value of a limit; money with a dollar sign.
fn format_amount(limit: &str, value: Option<&Value>) -> String {
    match value {
        Some(value) if limit.rsplit('.').next() == Some("spend") => super::json::dollars(value),
        Some(value) => value.to_string(),
        None => "–".to_owned(),
    }
}

fn format_verdict(verdict: Option<VerdictReport>) -> &'static str {
    match verdict {
        None => "not there",
        Some(VerdictReport::Fires) => "fires",
        Some(VerdictReport::Never) => "never",
        Some(VerdictReport::Depends) => "depends",
        Some(VerdictReport::Removed) => "removed",
    }
}

fn format_tokens(before: Option<u64>, after: Option<u64>) -> String {
    match (before, after) {
        (None, Some(after)) => format!("+{}", group_thousands(after)),
        (Some(before), None) => format!("-{}", group_thousands(before)),
        (Some(before), Some(after)) if after < before => format!("-{}", group_thousands(before - after)),
        (Some(before), Some(after)) => format!("+{}", group_thousands(after - before)),
        (None, None) => "0".to_owned(),
    }
}

fn format_location(source: Option<&SourceReport>) -> String {
    source.map(|s| format!("  {}:{}:{}", s.file, s.line, s.column)).unwrap_or_default()
}
