//! A comparison of two plans for people: lines with a tone for a terminal, Markdown for a pull request.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::diff::{CapabilityChange, Direction, LimitChange, Pair, PartChange, PlanDiff};
use super::json::{SourceReport, VerdictReport};
use super::table::grouped;
use crate::diagnostics::clean;

/// What a line is about; who prints it decides on colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    Heading,
    Plain,
    /// More may be done or spent.
    Wider,
    Narrower,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub tone: Tone,
    pub text: String,
}

/// The comparison, section by section; what did not change is not mentioned.
pub fn lines(diff: &PlanDiff) -> Vec<Line> {
    let mut out = Vec::new();
    let mut line = |tone, text: String| out.push(Line { tone, text: clean(&text, "\u{fffd}").into_owned() });
    line(Tone::Heading, title(diff));
    if diff.is_empty() {
        return out;
    }
    line(Tone::Plain, format!("  context {}", context(diff)));
    line(Tone::Plain, format!("  {}", prefix(diff)));
    for cost in costs(diff) {
        line(Tone::Plain, format!("  {cost}"));
    }
    if let Some(model) = &diff.model {
        line(Tone::Plain, format!("  model {} → {}", model.before, model.after));
    }
    if let Some(chain) = &diff.chain {
        line(Tone::Plain, format!("  chain {} → {}", chain.before.join(" · "), chain.after.join(" · ")));
    }
    if !diff.capabilities.is_empty() {
        line(Tone::Heading, "Capabilities".into());
    }
    for change in &diff.capabilities {
        let (tone, sign) = sign(change.direction);
        line(tone, format!("  {sign} {}{}", capability(change), at(change.source.as_ref())));
    }
    if !diff.limits.is_empty() {
        line(Tone::Heading, "Limits".into());
    }
    for change in &diff.limits {
        let tone = if change.raised { Tone::Wider } else { Tone::Narrower };
        line(tone, format!("  {}{}", limit(change), at(change.source.as_ref())));
    }
    if !diff.hooks.is_empty() {
        line(Tone::Heading, "Hooks".into());
    }
    for change in &diff.hooks {
        let text = format!("{} {}: {} → {}", change.event, change.id, verdict(change.before), verdict(change.after));
        let newly = if change.newly_reachable { ", newly reachable" } else { "" };
        line(Tone::Plain, format!("  {text}{newly}{}", at(change.source.as_ref())));
    }
    if !diff.parts.is_empty() {
        line(Tone::Heading, "Context".into());
    }
    for part in diff.parts.iter().filter(|part| !is_as_long(part)) {
        let text = format!("  {} {} {}", tokens(part.before, part.after), part.place, part.id);
        line(Tone::Plain, format!("{text}, {}{}", part.via, at(part.source.as_ref())));
    }
    let reworded = reworded(diff, str::to_owned);
    if !reworded.is_empty() {
        line(Tone::Plain, format!("  other words, as long as before: {}", reworded.join(", ")));
    }
    out
}

/// A part that says something else with as many tokens.
fn is_as_long(part: &PartChange) -> bool {
    part.before == part.after
}

/// Those parts, each once with the places where it stands.
fn reworded(diff: &PlanDiff, shown: impl Fn(&str) -> String) -> Vec<String> {
    let mut all: Vec<(&str, Vec<&str>)> = Vec::new();
    for part in diff.parts.iter().filter(|part| is_as_long(part)) {
        match all.iter_mut().find(|(id, _)| *id == part.id) {
            Some((_, places)) if places.contains(&part.place.as_str()) => {}
            Some((_, places)) => places.push(&part.place),
            None => all.push((&part.id, vec![&part.place])),
        }
    }
    all.into_iter().map(|(id, places)| format!("{} ({})", shown(id), places.join(", "))).collect()
}

/// The example of a change, where it says more than the pattern.
fn example(change: &CapabilityChange) -> Option<&String> {
    change.example.as_ref().filter(|example| **example != change.what)
}

/// For a pull request: a verdict, a table of what it costs, then what changed.
pub fn markdown(diff: &PlanDiff) -> String {
    let mut out = format!("### `{}`\n\n", code(&diff.directive));
    if diff.is_empty() {
        out.push_str("The plan is the same.\n");
        return out;
    }
    let verdict_line = match (&diff.before, &diff.after) {
        (None, _) => "🆕 **new directive**",
        (_, None) => "**removed**",
        _ if diff.widened => "🔴 **widened**: it may do or spend more than before",
        _ => "not widened",
    };
    write!(out, "{verdict_line}\n\n| | before | after |\n|---|--:|--:|\n").ok();
    let mut row = |name: &str, before: String, after: String| {
        writeln!(out, "| {name} | {before} | {after} |").ok();
    };
    row("context, tokens", grouped(diff.tokens.before), grouped(diff.tokens.after));
    for (name, pair) in
        [("first request", &diff.cost.first), ("typical run", &diff.cost.typical), ("worst run", &diff.cost.worst)]
    {
        row(name, dollars(pair.before.as_ref()), dollars(pair.after.as_ref()));
    }
    for change in &diff.limits {
        let mark = if change.raised { "🔴 " } else { "" };
        row(
            &format!("{mark}limit `{}`", code(&change.name)),
            amount(&change.name, change.before.as_ref()),
            amount(&change.name, change.after.as_ref()),
        );
    }
    if let Some(Pair { before, after }) = &diff.model {
        row("model", format!("`{}`", code(before)), format!("`{}`", code(after)));
    }
    let prefix = prefix(diff);
    writeln!(out, "\n{prefix}").ok();
    let other_words = reworded(diff, |id| format!("`{}`", code(id)));
    let in_other_words =
        (!other_words.is_empty()).then(|| format!("- other words, as long as before: {}", other_words.join(", ")));
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
                let mark = if change.direction == Direction::Widened { "🔴 widened" } else { "🟢 narrowed" };
                let example = example(change).map(|e| format!(", for example `{}`", code(e))).unwrap_or_default();
                format!("- {mark} `{}`{example} ({})", code(&change.what), code(&change.by))
            })
            .collect(),
    );
    section(
        "Hooks",
        diff.hooks
            .iter()
            .map(|hook| {
                let newly = if hook.newly_reachable { " **newly reachable**" } else { "" };
                let (before, after) = (verdict(hook.before), verdict(hook.after));
                format!("- `{}` on `{}`: {before} → {after}{newly}", code(&hook.id), code(&hook.event))
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
                    tokens(part.before, part.after),
                    code(&part.id),
                    part.place,
                    code(&part.via)
                )
            })
            .chain(in_other_words)
            .collect(),
    );
    out
}

/// A text that ends neither its code span nor its table.
fn code(text: &str) -> String {
    clean(text, "\u{fffd}").replace('`', "'").replace('|', "\\|")
}

fn title(diff: &PlanDiff) -> String {
    let short = |id: &str| id.get(..12).unwrap_or(id).to_owned();
    let what = match (&diff.before, &diff.after) {
        (None, None) => "in neither".to_owned(),
        (None, Some(after)) => format!("new, {}", short(after)),
        (Some(before), None) => format!("gone, was {}", short(before)),
        (Some(before), Some(after)) if before == after => format!("the same plan, {}", short(after)),
        (Some(before), Some(after)) => format!("{} → {}", short(before), short(after)),
    };
    format!("{}  ·  {what}", diff.directive)
}

fn context(diff: &PlanDiff) -> String {
    let Pair { before, after } = diff.tokens;
    let sign = if after >= before { '+' } else { '-' };
    format!("{} → {} tokens ({sign}{})", grouped(before), grouped(after), grouped(after.abs_diff(before)))
}

fn prefix(diff: &PlanDiff) -> String {
    let prefix = &diff.prefix;
    let kept = format!("cache prefix: {} of {} tokens stay the same", grouped(prefix.shared), grouped(prefix.of));
    match &prefix.broken_by {
        Some(part) => format!("{kept}, up to `{}`", code(part)),
        None => kept,
    }
}

fn costs(diff: &PlanDiff) -> Vec<String> {
    let all =
        [("first request", &diff.cost.first), ("typical run", &diff.cost.typical), ("worst run", &diff.cost.worst)];
    let changed = all.into_iter().filter(|(_, pair)| pair.before != pair.after);
    changed
        .map(|(name, pair)| format!("{name} {} → {}", dollars(pair.before.as_ref()), dollars(pair.after.as_ref())))
        .collect()
}

fn dollars(value: Option<&Value>) -> String {
    value.map_or_else(|| "–".to_owned(), super::json::dollars)
}

fn sign(direction: Direction) -> (Tone, char) {
    match direction {
        Direction::Widened => (Tone::Wider, '+'),
        Direction::Narrowed => (Tone::Narrower, '-'),
    }
}

fn capability(change: &CapabilityChange) -> String {
    let word = match change.direction {
        Direction::Widened => "widened",
        Direction::Narrowed => "narrowed",
    };
    let example = example(change).map(|e| format!(", for example {e}")).unwrap_or_default();
    format!("{word} {}{example} ({})", change.what, change.by)
}

fn limit(change: &LimitChange) -> String {
    let word = if change.raised { "raised" } else { "lowered" };
    let shown = |value: &Option<Value>| amount(&change.name, value.as_ref());
    format!("{} {word} {} → {}", change.name, shown(&change.before), shown(&change.after))
}

/// The value of a limit; money with its sign.
fn amount(limit: &str, value: Option<&Value>) -> String {
    match value {
        Some(value) if limit == "spend" => super::json::dollars(value),
        Some(value) => value.to_string(),
        None => "–".to_owned(),
    }
}

fn verdict(verdict: Option<VerdictReport>) -> &'static str {
    match verdict {
        None => "not there",
        Some(VerdictReport::Fires) => "fires",
        Some(VerdictReport::Never) => "never",
        Some(VerdictReport::Depends) => "depends",
        Some(VerdictReport::Removed) => "removed",
    }
}

fn tokens(before: Option<u64>, after: Option<u64>) -> String {
    match (before, after) {
        (None, Some(after)) => format!("+{}", grouped(after)),
        (Some(before), None) => format!("-{}", grouped(before)),
        (Some(before), Some(after)) if after < before => format!("-{}", grouped(before - after)),
        (Some(before), Some(after)) => format!("+{}", grouped(after - before)),
        (None, None) => "0".to_owned(),
    }
}

fn at(source: Option<&SourceReport>) -> String {
    source.map(|s| format!("  {}:{}:{}", s.file, s.line, s.column)).unwrap_or_default()
}
