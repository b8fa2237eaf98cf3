//! The help of a chat: an overview of its commands that fits on a small screen, the list of all commands, and the help
//! of a single command.

use rye_compiler::commands::read_commands;
use rye_compiler::diagnostics::Diagnostics;
use rye_compiler::hook::HookPoint;
use rye_compiler::item::Items;
use rye_compiler::key_bindings::KeyBindings;
use rye_compiler::world::World;
use rye_engine::live_state::LiveState;

use super::commands::{ListedCommand, list_commands, list_message_commands};
use super::keys::key_help;
use crate::present::table::two_columns;

/// A built-in command of a session, with its help.
#[derive(Debug, Clone, Copy)]
pub struct BuiltInCommand {
    pub name: &'static str,
    /// The arguments; empty if there are none.
    pub arguments: &'static str,
    pub summary: &'static str,
    /// An example of the typed command: `/model fast`.
    pub example: &'static str,
}

const fn command(
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    example: &'static str,
) -> BuiltInCommand {
    BuiltInCommand { name, arguments, summary, example }
}

/// The commands of a session, in groups.
pub const COMMAND_GROUPS: [(&str, &[BuiltInCommand]); 5] = [
    (
        "conversation",
        &[
            command(
                "fork",
                "N|THREAD",
                "continue from the state before prompt N, or from the end of another branch of the session",
                "/fork 2",
            ),
            command(
                "rewind",
                "[N [conversation|files|both]]",
                "list the prompts, or the files changed since prompt N, or go back to the state before it",
                "/rewind 2",
            ),
            command("retry", "", "discard the last reply and send its prompt again", "/retry"),
            command(
                "compact",
                "[FOCUS] [confirm]",
                "replace the conversation by a summary, after a question that shows the effect and the price",
                "/compact the failing tests",
            ),
            command("tree", "", "list the threads of the session and their prompts", "/tree"),
            command("copy", "[N]", "copy the last reply, or the Nth from the end, to the clipboard", "/copy 2"),
            command(
                "export",
                "[md|html|jsonl|script|FILE]",
                "write the conversation to FILE, or to a new file in the project folder with the name of the thread",
                "/export notes.html",
            ),
            command(
                "steer",
                "TEXT",
                "send a text that the model reads before its next turn",
                "/steer skip the benchmarks",
            ),
            command(
                "follow-up",
                "TEXT",
                "send a text that the model reads when it would otherwise end the prompt",
                "/follow-up then run the tests",
            ),
            command("queue", "", "list the queued messages", "/queue"),
            command("clear", "", "withdraw the queued messages (/new starts a new conversation)", "/clear"),
        ],
    ),
    (
        "bounds",
        &[
            command(
                "model",
                "[NAME]",
                "continue with another model; without NAME, show the current one",
                "/model fast",
            ),
            command(
                "mode",
                "MODE",
                "choose the calls that prompts may make: read-only, ask, or auto (without approval requests)",
                "/mode read-only",
            ),
            command(
                "budget",
                "DOLLARS",
                "set the maximum cost of each prompt; for a single prompt, type `$0.20 TEXT`",
                "/budget 0.20",
            ),
            command(
                "with",
                "PATTERN… TEXT",
                "send a prompt that uses only these capabilities",
                "/with rye.fetch.* explain the build",
            ),
        ],
    ),
    (
        "request",
        &[
            command(
                "context",
                "[PART [confirm]]",
                "list the parts of the next request, or show the price without PART; `confirm` leaves PART out",
                "/context context/AGENTS.md",
            ),
            command("preview", "TEXT", "show the price of a message", "/preview now in French"),
            command("plan", "", "show the plan of the session: permissions, limits, prompt, tools", "/plan"),
            command(
                "why",
                "[last|PART]",
                "show how your last message was expanded before it was sent, or the origin of a part of the plan",
                "/why limit.spend",
            ),
            command("hooks", "", "list the hooks of the last prompt with their verdicts", "/hooks"),
            command("skills", "", "list the skills with their tokens", "/skills"),
            command("approvals", "", "list the approvals of the session and the project", "/approvals"),
            command("cost", "", "show the cost of the session", "/cost"),
        ],
    ),
    (
        "session",
        &[
            command("name", "TITLE", "set the title of the session", "/name parser rewrite"),
            command("reload", "", "compile the directive again and continue with the new plan", "/reload"),
            command("new", "[wait|cancel]", "close the session and start a new one", "/new"),
            command(
                "resume",
                "[THREAD] [wait|cancel]",
                "close the session and reopen THREAD; without THREAD, list the closed sessions",
                "/resume rye/agent/chat-1795644116",
            ),
            command(
                "exit",
                "[wait|detach|cancel]",
                "close the session; wait for its children, leave them in the background, or cancel them",
                "/exit cancel",
            ),
            command("quit", "", "close the session, like /exit", "/quit"),
        ],
    ),
    ("help", &[command("help", "[NAME|all|keys]", "list the commands, explain one, or list the keys", "/help model")]),
];

/// Maximum length of a row of the overview, without the name of its group.
const MAX_ROW_CHARS: usize = 60;

/// Forms of a typed text that do not call a command of the session, each with its meaning.
const TEXT_FORMS: [(&str, &str); 6] = [
    ("/NAME ARGS", "send the prompt template `.ai/prompts/NAME.md`"),
    ("/skill:NAME ARGS", "send a skill"),
    ("$0.20 TEXT", "send a prompt that costs at most $0.20"),
    ("!COMMAND", "run a command and show its output to the model"),
    ("!!COMMAND", "run a command and do not show its output to the model"),
    ("//TEXT", "send a text that starts with `/`"),
];

/// Returns the built-in commands in the order in which the help lists them.
pub fn built_in_commands() -> impl Iterator<Item = &'static BuiltInCommand> {
    COMMAND_GROUPS.iter().flat_map(|(_, commands)| commands.iter())
}

/// Returns the help of a topic: `all`, `keys` or the name of a command. Without a topic, returns an overview.
pub fn help(world: &dyn World, topic: Option<&str>) -> String {
    match topic.map(|topic| topic.trim_start_matches('/')) {
        None | Some("") => overview(world),
        Some("keys") => two_columns(&key_help(&KeyBindings::read(world))),
        Some("all") => list_all(world),
        Some(name) => explain_command(world, name),
    }
}

/// Returns a line that lists the commands of the settings that the plan of the session does not contain yet. These
/// commands are available after `/reload`. Returns an empty text if there are none.
pub fn unloaded_commands(world: &dyn World, live: Option<&LiveState>) -> String {
    let Some(live) = live else { return String::new() };
    let is_known = |id: &str| live.plan.hooks.iter().any(|hook| hook.event == HookPoint::Command && hook.id == id);
    let declared = read_commands(&Items::new(world), &mut Diagnostics::new());
    let ids = declared.into_iter().map(|command| command.hook.id.node.clone());
    let names: Vec<String> = ids.filter(|id| !is_known(id)).map(|id| format!("/{id}")).collect();
    if names.is_empty() { String::new() } else { format!("\nonly after `/reload`: {}", names.join(", ")) }
}

fn call(name: &str, arguments: &str) -> String {
    format!("/{name} {arguments}").trim_end().to_owned()
}

fn overview(world: &dyn World) -> String {
    let mut rows = Vec::new();
    for (group, commands) in COMMAND_GROUPS {
        push_group(&mut rows, group, commands.iter().map(|one| call(one.name, one.arguments)));
    }
    let own = list_message_commands(world).into_iter();
    push_group(&mut rows, "project", own.map(|one| call(&one.name, &one.arguments)));
    push_group(&mut rows, "text", TEXT_FORMS.iter().map(|(form, _)| (*form).to_owned()));
    format!(
        "{}\n`/help NAME` explains a command, `/help all` explains all, `/help keys` lists the keys",
        two_columns(&rows)
    )
}

/// Adds the entries of a group to `rows`, as many in each row as fit. Only the first row has the name of the group.
fn push_group(rows: &mut Vec<(String, String)>, group: &str, entries: impl Iterator<Item = String>) {
    let mut name = group;
    let mut row = String::new();
    for entry in entries {
        if !row.is_empty() && row.chars().count() + entry.chars().count() > MAX_ROW_CHARS {
            rows.push((std::mem::take(&mut name).to_owned(), std::mem::take(&mut row)));
        }
        row = if row.is_empty() { entry } else { format!("{row} · {entry}") };
    }
    if !row.is_empty() {
        rows.push((name.to_owned(), row));
    }
}

fn list_all(world: &dyn World) -> String {
    let of = |one: ListedCommand| (call(&one.name, &one.arguments), one.description);
    let forms = TEXT_FORMS.iter().map(|(form, about)| ((*form).to_owned(), (*about).to_owned()));
    two_columns(&list_commands(world).into_iter().map(of).chain(forms).collect::<Vec<_>>())
}

fn explain_command(world: &dyn World, name: &str) -> String {
    let Some(found) = list_commands(world).into_iter().find(|one| one.name == name) else {
        return format!("no command `/{name}`; `/help all` lists them");
    };
    let example = built_in_commands().find(|one| one.name == name).map(|one| format!("\nexample: {}", one.example));
    let description = if found.description.is_empty() { format!("a {}", found.kind) } else { found.description };
    format!("{}  {description}{}", call(&found.name, &found.arguments), example.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use rye_compiler::world::MapWorld;

    use super::*;

    #[test]
    fn overview_fits_on_a_small_screen_and_names_every_command() {
        let text = crate::present::wrap::fold_for_columns(&help(&MapWorld::new(), None), 80);
        assert!(text.lines().count() <= 20, "{text}");
        for command in built_in_commands() {
            assert!(text.contains(&format!("/{}", command.name)), "{}", command.name);
        }
    }

    #[test]
    fn guide_names_every_command_and_every_key() {
        let guide = include_str!("../../../../docs/guides/chat.md");
        for command in built_in_commands() {
            let is_named =
                guide.contains(&format!("`/{}`", command.name)) || guide.contains(&format!("`/{} ", command.name));
            assert!(is_named, "docs/guides/chat.md does not name /{}", command.name);
        }
        let listed = key_help(&KeyBindings::default());
        for key in listed.iter().flat_map(|(keys, _)| keys.split(", ")) {
            let key = key.replace('_', "\\_");
            assert!(guide.contains(&key), "docs/guides/chat.md does not name the key {key}");
        }
    }

    #[test]
    fn every_command_has_a_help_with_an_example() {
        for command in built_in_commands() {
            let text = help(&MapWorld::new(), Some(command.name));
            assert!(text.contains(command.summary) && text.contains(&format!("example: /{}", command.name)), "{text}");
        }
        assert_eq!(help(&MapWorld::new(), Some("nothing")), "no command `/nothing`; `/help all` lists them");
    }
}
