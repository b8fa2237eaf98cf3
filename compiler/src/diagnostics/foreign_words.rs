//! Words of other agent systems and workflow languages, each with help that names the equivalent in this system. These
//! words are looked up before a did-you-mean suggestion is made, because the known word with the most similar spelling
//! rarely has the meaning of the foreign word.

/// The kind of place in a file where an unknown word was read, such as an event name or a key of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WordPlace {
    Event,
    HookKey,
    Limit,
    /// An element of `<directive>` or `<metadata>`.
    Element,
    DirectiveAttribute,
    ModelAttribute,
    /// An attribute of `<input>`, `<output>`, `<item>` or `<field>`.
    FieldAttribute,
    FieldType,
    Tool,
    ToolKey,
    ToolKind,
    ProviderKey,
    ModelKey,
    ModelName,
    Setting,
}

use WordPlace as P;

/// The table of words of other systems. Each line holds three parts, separated by tabs: a `WordPlace`, the words in
/// lower case without separators, and the help for these words.
const TABLE: &str = include_str!("foreign_words.tsv");

/// A line of [`TABLE`]: words of other systems, the place where the words occur, and the help for them.
struct Row<'t> {
    place: &'t str,
    words: &'t str,
    help: &'t str,
}

fn rows() -> impl Iterator<Item = Row<'static>> {
    TABLE.lines().filter_map(|line| {
        let (place, rest) = line.split_once('\t')?;
        let (words, help) = rest.split_once('\t')?;
        Some(Row { place, words, help })
    })
}

impl WordPlace {
    #[cfg(test)]
    const ALL: [Self; 15] = [
        P::Event,
        P::HookKey,
        P::Limit,
        P::Element,
        P::DirectiveAttribute,
        P::ModelAttribute,
        P::FieldAttribute,
        P::FieldType,
        P::Tool,
        P::ToolKey,
        P::ToolKind,
        P::ProviderKey,
        P::ModelKey,
        P::ModelName,
        P::Setting,
    ];

    /// Returns the name of this kind of place in the table of foreign words.
    const fn name(self) -> &'static str {
        match self {
            Self::Event => "Event",
            Self::HookKey => "HookKey",
            Self::Limit => "Limit",
            Self::Element => "Element",
            Self::DirectiveAttribute => "DirectiveAttribute",
            Self::ModelAttribute => "ModelAttribute",
            Self::FieldAttribute => "FieldAttribute",
            Self::FieldType => "FieldType",
            Self::Tool => "Tool",
            Self::ToolKey => "ToolKey",
            Self::ToolKind => "ToolKind",
            Self::ProviderKey => "ProviderKey",
            Self::ModelKey => "ModelKey",
            Self::ModelName => "ModelName",
            Self::Setting => "Setting",
        }
    }
}

/// Returns the help for an unknown word at a kind of place; `None` if the table of foreign words has no entry for the
/// word at this kind of place.
pub(super) fn help_for(place: WordPlace, word: &str) -> Option<&'static str> {
    let plain = normalize(word);
    let row = rows().find(|row| row.place == place.name() && row.words.split(' ').any(|known| known == plain))?;
    Some(row.help)
}

/// Returns the help for an unknown element, attribute or key that is a word of another system; `None` for other words.
/// `what` is the kind of the word: `element`, `attribute` or `key`. `of` names the parent of the word as error messages
/// do: `a hook`, or a tag or settings file in backticks.
pub(super) fn help_for_key(what: &str, key: &str, of: &str) -> Option<String> {
    let place = match (what, of) {
        ("element", "`<metadata>`" | "`<directive>`") => P::Element,
        ("attribute", "`<directive>`") => P::DirectiveAttribute,
        ("attribute", "`<model>`") => P::ModelAttribute,
        ("attribute", "`<input>`" | "`<output>`" | "`<item>`" | "`<field>`") => P::FieldAttribute,
        ("key", "a hook") | ("attribute" | "element", "`<hook>`") => P::HookKey,
        ("key", of) if of.starts_with("`agent/providers/") => P::ProviderKey,
        ("key", of) if of.starts_with("`models.") && of.contains("` of `agent/providers/") => P::ModelKey,
        ("key", "an assertion") if matches!(key, "if" | "when" | "where" | "directives" | "scope" | "only") => {
            return Some("did you mean `for`?".to_owned());
        }
        ("key", of) if of.ends_with("`agent/resilience`") => P::Setting,
        _ => return None,
    };
    help_for(place, key).map(str::to_owned)
}

/// Returns the help for an unknown element in `<inputs>` or `<outputs>`: the correct form of the element. Older files
/// use the name of an input or output as the tag (`<success>…</success>`). `None` if the parent `of` is another
/// element.
pub(super) fn help_for_named_field(what: &str, key: &str, of: &str) -> Option<String> {
    const GENERAL: [&str; 11] = [
        "parameter",
        "parameters",
        "param",
        "arg",
        "argument",
        "field",
        "variable",
        "var",
        "property",
        "item",
        "value",
    ];
    let element = match (what, of) {
        ("element", "`<inputs>`") => "input",
        ("element", "`<outputs>`") => "output",
        _ => return None,
    };
    if GENERAL.contains(&key) {
        return Some(format!("did you mean `<{element} name=\"…\">`?"));
    }
    Some(format!("write `<{element} name=\"{key}\">…</{element}>`"))
}

/// Returns the help for an unknown word in the metadata of a tool; `None` if the word is not known as a word of another
/// system. `is_kind` is true if the word names a kind of tool, and false if the word is a key.
pub(crate) fn help_for_tool_word(is_kind: bool, word: &str) -> Option<&'static str> {
    help_for(if is_kind { P::ToolKind } else { P::ToolKey }, word)
}

/// Returns the help for an unknown action: the first action in `allowed` with a similar meaning. For a word such as
/// `allow` or `ask`, the help states why no action has this meaning. `None` if the word is not known or no allowed
/// action is similar.
pub(super) fn help_for_action(action: &str, allowed: &[String]) -> Option<String> {
    const MEANINGS: [(&str, &[&str]); 10] = [
        (
            "deny reject forbid refuse prevent disallow permissiondecision decision veto",
            &["block", "terminate", "handled"],
        ),
        ("stop exit kill cancel halt quit end die interrupt", &["terminate", "block", "handled"]),
        (
            "run call exec command cmd bash shell script tool invoke trigger spawn uses agent log notify warn print echo emit alert webhook http",
            &["execute"],
        ),
        (
            "append prepend addcontext additionalcontext insert add prompt context",
            &["inject", "message", "system_prompt", "fetch", "follow_up"],
        ),
        (
            "rewrite replaceresult updatedinput edit update override redact mask set change output",
            &["modify", "transform", "replace"],
        ),
        ("summarize summarise compactcontext trim truncate prune shorten forget", &["compact", "keep_last"]),
        ("wait sleep pause suspend", &["escalate"]),
        ("increase lift extendlimit bump grow", &["raise"]),
        ("goto route redirect switch extends setparent", &["set_extends"]),
        ("tryagain repeat rerun redo backoff", &["retry"]),
    ];
    let plain = normalize(action);
    if matches!(
        plain.as_str(),
        "allow" | "approve" | "accept" | "permit" | "ok" | "pass" | "noop" | "none" | "skip" | "ignore"
    ) {
        return Some(
            "no action is needed: a call proceeds unless a hook stops it; only `<permissions>` can grant calls".into(),
        );
    }
    if matches!(plain.as_str(), "ask" | "confirm" | "approval" | "requireapproval" | "permission") {
        return Some(
            "a hook cannot request an approval: a call needs an approval if the policy of its risk tier is `acknowledge_required` in `agent/capability_risk`".into(),
        );
    }
    let (_, meant) = MEANINGS.iter().find(|(words, _)| words.split(' ').any(|known| known == plain))?;
    let meant = meant.iter().find(|word| allowed.iter().any(|other| other == *word))?;
    Some(format!("did you mean `{meant}`?"))
}

/// Returns the help for a grant of a tool that does not exist, if the pattern has the form of another system:
/// `mcp__SERVER__TOOL`, `Bash(git *)` (a tool and a rule for its arguments), or a known name of a tool. `None` for any
/// other pattern.
pub(crate) fn help_for_tool(pattern: &str) -> Option<String> {
    let name = pattern.strip_prefix("rye.execute.tool.").unwrap_or(pattern);
    if let Some((server, tool)) = name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
        return Some(format!("did you mean `mcp.{server}.{tool}`? `rye mcp refresh` writes the tools of a server"));
    }
    if let Some((tool, _)) = name.split_once('(') {
        let known = help_for(P::Tool, tool).unwrap_or("name only the tool;");
        return Some(format!(
            "{known} a grant cannot restrict arguments, but a hook on `tool_call` can block calls by their arguments"
        ));
    }
    // An id with folders is an id of this system, not a tool name of another system.
    help_for(P::Tool, name).filter(|_| !name.contains(['.', '/'])).map(str::to_owned)
}

/// Returns the id of the built-in tool that other agents call `name`, with dots: `rye.bash.bash` for `Bash`. `None` if
/// no built-in tool is known for the name.
pub(crate) fn known_tool(name: &str) -> Option<&'static str> {
    let (_, rest) = help_for(P::Tool, name)?.split_once('`')?;
    let (named, _) = rest.split_once('`')?;
    // The help for a tool that needs a host shows the whole grant: `<tool net="host">rye.web.fetch</tool>`.
    let id = named.strip_suffix("</tool>").and_then(|grant| grant.rsplit_once('>')).map_or(named, |(_, id)| id);
    Some(id).filter(|id| id.starts_with("rye."))
}

/// Returns a word in lower case and without separators, so that `PreToolUse` and `pre_tool_use` are equal.
fn normalize(word: &str) -> String {
    let kept = word.chars().filter(|c| !matches!(c, '_' | '-' | ' ' | '.' | '/'));
    kept.flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn words_are_normalized_and_unique_in_their_place() {
        let mut seen = std::collections::BTreeSet::new();
        let places: Vec<&str> = WordPlace::ALL.iter().map(|place| place.name()).collect();
        assert_eq!(rows().count(), TABLE.lines().count());
        for Row { place, words, help } in rows() {
            assert!(places.contains(&place) && !help.is_empty(), "{place}");
            for word in words.split(' ') {
                assert!(seen.insert((place, word)), "{place} {word}");
                assert_eq!(word, normalize(word), "{place}");
            }
        }
    }

    #[test]
    fn built_in_tools_are_found_by_their_names_in_other_agents() {
        for (name, id) in [("Bash", "rye.bash.bash"), ("WebFetch", "rye.web.fetch"), ("Read", "rye.file-system.read")] {
            assert_eq!(known_tool(name), Some(id), "{name}");
        }
        assert_eq!(known_tool("WebSearch"), None);
    }

    #[test]
    fn every_spelling_of_a_word_has_its_help() {
        for word in ["PreToolUse", "pre_tool_use", "before-tool", "onToolStart"] {
            assert_eq!(help_for(P::Event, word), Some("did you mean `tool_call`?"), "{word}");
        }
        assert_eq!(help_for(P::Limit, "max_turn"), Some("did you mean `turns`?"));
        assert_eq!(help_for(P::Event, "elephant"), None);
    }

    #[test]
    fn action_is_one_of_the_event() {
        let allowed = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(help_for_action("deny", &allowed(&["block", "execute"])).unwrap(), "did you mean `block`?");
        assert_eq!(help_for_action("deny", &allowed(&["retry", "terminate"])).unwrap(), "did you mean `terminate`?");
        assert_eq!(help_for_action("deny", &allowed(&["set_extends"])), None);
        assert!(help_for_action("Allow", &[]).unwrap().starts_with("no action is needed"));
    }

    #[test]
    fn grants_of_other_systems_are_translated() {
        assert_eq!(help_for_tool("rye.execute.tool.Bash").unwrap(), "did you mean `rye.bash.bash`?");
        assert!(help_for_tool("Bash(git *)").unwrap().starts_with("did you mean `rye.bash.bash`? a grant cannot"));
        assert!(help_for_tool("mcp__github__create_issue").unwrap().contains("`mcp.github.create_issue`"));
        assert_eq!(help_for_tool("rye.execute.tool.rye.bash.bsh"), None);
    }
}
