//! `capability::*`: grants that match no item, or that allow more than intended.

use rye_grammar::Span;
use thiserror::Error;

use super::foreign_words;
use super::{Label, Problem, Severity, did_you_mean, new_label};

/// The route on which a directive has the reported grants: `hook` selects `parent` as the extends parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteOfGrants {
    pub hook: String,
    pub parent: String,
}

fn describe_route(route: Option<&RouteOfGrants>) -> String {
    route.map_or_else(String::new, |RouteOfGrants { hook, parent }| {
        format!(" with the parent `{parent}`, which the hook `{hook}` selects")
    })
}

fn describe_unused(tool: Option<&String>, why: Option<&String>) -> String {
    match (tool, why) {
        (Some(tool), Some(why)) => format!("no granted tool uses this attribute (`{tool}`: {why})"),
        (Some(_), None) | (None, _) => "only `<tool>` grants in `<execute>` can open folders and hosts".to_owned(),
    }
}

fn describe_opening(opening: &str, entries: &str, tool: &str) -> String {
    if entries.is_empty() {
        return format!("without `{opening}`, `{tool}` can write in the whole project");
    }
    format!("the base does not grant `{opening}=\"{entries}\"` for `{tool}`")
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CapabilityError {
    #[error("`{pattern}` matches no item in any space")]
    MatchesNothing { pattern: String, span: Span, suggestion: Option<String> },
    /// A directive `leaf` that grants more than its sealed ancestor `base`. `example` is a shortest capability that
    /// only `leaf` grants.
    #[error("`{leaf}` grants more than its base `{base}`: `{pattern}` allows `{example}`")]
    ExceedsBase { leaf: String, base: String, pattern: String, example: String, span: Span, base_span: Span },
    /// A grant of the directive `leaf` opens folders or hosts to a tool, and `base` does not open them. `base` is an
    /// ancestor of `leaf` with the attribute `seal="true"`. `entries` is empty if the grant names no folder, so that a
    /// file tool may write everywhere. `granted` lists the entries of the base.
    #[error("`{leaf}` grants more than its base `{base}`: {}", describe_opening(opening, entries, tool))]
    OpensMoreThanBase {
        leaf: String,
        base: String,
        tool: String,
        opening: &'static str,
        entries: String,
        granted: String,
        span: Span,
        base_span: Span,
    },
    #[error("cannot decide in reasonable time whether `{pattern}` stays within the grants of the base directive")]
    TooComplex { pattern: String, span: Span, base_span: Span },
    #[error("`{pattern}` has the risk `{tier}`, which is not acknowledged")]
    Unacknowledged { pattern: String, tier: String, span: Span },
    /// An acknowledgement of a risk tier that no grant of the same file has.
    #[error("the acknowledgement of the risk `{tier}` has no effect: no grant has this risk")]
    AcknowledgesNothing { tier: String, span: Span },
    #[error("`{pattern}` is blocked: its risk is `{tier}`")]
    /// A grant whose risk tier `tier` is blocked by the risk table. `table` is the place of the project's or the user's
    /// list of classifications, if that list replaces the standard list and has no entry for the capability.
    Blocked { pattern: String, tier: String, span: Span, table: Option<Span> },
    /// A grant, or an acknowledgement, that a `<permissions>` contains twice. `what` names the grant or
    /// acknowledgement.
    #[error("{what} occurs twice")]
    Repeated { what: String, first: Span, second: Span },
    /// The body tells the model to use a capability that the directive does not have.
    #[error("the body uses `{capability}`, which the directive is not granted{}", describe_route(route.as_ref()))]
    UngrantedCall { capability: String, span: Span, granted: Span, route: Option<RouteOfGrants> },
    #[error("`write=\"{path}\"` has no effect: {why}")]
    OpensNothing { path: String, why: &'static str, span: Span },
    /// A grant with `write` whose folders have no effect. The grant `wide` of the same `<permissions>` names no folder,
    /// so that `tool` may write in the whole project.
    #[error("`write=\"{entries}\"` has no effect: `{wide}` lets `{tool}` write in the whole project")]
    VoidBound { entries: String, wide: String, tool: String, span: Span, wide_span: Span },
    /// Entries of `write` or `net` that no granted tool uses. `tool` is the first tool that the grant matches, and
    /// `why` the reason why the tool does not use the entries. `server` is the MCP server of the tool, if the server
    /// runs in a sandbox: its settings can then name the entries.
    #[error("`{opening}=\"{entries}\"` has no effect: {}", describe_unused(tool.as_ref(), why.as_ref()))]
    UnusedOpening {
        opening: &'static str,
        entries: String,
        tool: Option<String>,
        why: Option<String>,
        server: Option<String>,
        span: Span,
    },
    /// A grant without use, because every call that it allows is refused. `add` is the element to write, if an
    /// attribute or a further grant would help. `tokens` is the size of the tool's definition.
    #[error("every call of `{item}` that `{pattern}` allows is refused: {why}")]
    DeadGrant { pattern: String, item: String, why: String, add: Option<String>, tokens: u64, span: Span },
    /// A hook blocks every call that the grant allows.
    #[error("every call of `{item}` that `{pattern}` allows is refused: the hook `{hook}` blocks it")]
    BlockedGrant { pattern: String, item: String, hook: String, tokens: Option<u64>, span: Span, hook_span: Span },
    /// A grant of a hook that the hook's action never uses.
    #[error("the {what} `{hook}` never uses its grant `{pattern}`: {why}")]
    UnusedHookGrant { what: &'static str, hook: String, pattern: String, why: String, span: Span },
    /// A literal argument of a call is outside of the folders and hosts that the grants allow. `why` is the reason, as
    /// a clause.
    #[error("`{value}` is refused: {why}")]
    OutsideGrant { value: String, why: String, span: Span, granted: Option<Span> },
    /// Hosts are granted to a program, but the sandbox cannot restrict a program to certain hosts.
    #[error(
        "`net` opens the whole network to `{tool}`, not only `{hosts}`: the sandbox cannot restrict a program to hosts"
    )]
    WholeNetwork { tool: String, hosts: String, span: Span },
    /// A program is granted write access to the project's folder. The program can change existing entries of the
    /// folder, but cannot create entries directly in it.
    #[error(
        "`write=\".\"` lets `{tool}` change the existing entries of the project's folder, but not create entries directly in it"
    )]
    OnlyWhatIsThere { tool: String, span: Span },
}

/// Returns the name of the MCP server whose tools a pattern names: `github` for `rye.execute.tool.mcp.github.*`; `None`
/// for other patterns.
fn mcp_server_of(pattern: &str) -> Option<&str> {
    let path = pattern.strip_prefix("rye.execute.tool.").unwrap_or(pattern);
    let (server, _) = path.strip_prefix("mcp.")?.split_once('.')?;
    (!server.contains(['*', '?', '['])).then_some(server)
}

impl Problem for CapabilityError {
    fn code(&self) -> &'static str {
        match self {
            Self::MatchesNothing { .. } => "capability::matches-nothing",
            Self::ExceedsBase { .. } | Self::OpensMoreThanBase { .. } => "capability::exceeds-base",
            Self::TooComplex { .. } => "capability::too-complex",
            Self::Unacknowledged { .. } => "capability::unacknowledged",
            Self::AcknowledgesNothing { .. } => "capability::acknowledges-nothing",
            Self::Blocked { .. } => "capability::blocked",
            Self::Repeated { .. } => "capability::repeated",
            Self::UngrantedCall { .. } => "capability::ungranted-call",
            Self::OpensNothing { .. } | Self::UnusedOpening { .. } | Self::VoidBound { .. } => {
                "capability::opens-nothing"
            }
            Self::DeadGrant { .. } | Self::BlockedGrant { .. } | Self::UnusedHookGrant { .. } => {
                "capability::dead-grant"
            }
            Self::OutsideGrant { .. } => "capability::outside-grant",
            Self::WholeNetwork { .. } => "capability::whole-network",
            Self::OnlyWhatIsThere { .. } => "capability::only-what-is-there",
        }
    }

    fn severity(&self) -> Severity {
        match self {
            Self::Blocked { .. } => Severity::Error,
            Self::MatchesNothing { .. }
            | Self::ExceedsBase { .. }
            | Self::OpensMoreThanBase { .. }
            | Self::TooComplex { .. }
            | Self::Unacknowledged { .. }
            | Self::AcknowledgesNothing { .. }
            | Self::Repeated { .. }
            | Self::UngrantedCall { .. }
            | Self::DeadGrant { .. }
            | Self::BlockedGrant { .. }
            | Self::UnusedHookGrant { .. }
            | Self::OutsideGrant { .. }
            | Self::OpensNothing { .. }
            | Self::VoidBound { .. }
            | Self::UnusedOpening { .. } => Severity::Warning,
            Self::WholeNetwork { .. } | Self::OnlyWhatIsThere { .. } => Severity::Advice,
        }
    }

    fn help(&self) -> Option<String> {
        match self {
            Self::MatchesNothing { suggestion, pattern, .. } => foreign_words::help_for_tool(pattern).or_else(|| {
                did_you_mean(suggestion.as_ref(), || {
                if let Some(server) = mcp_server_of(pattern) {
                    return Some(format!("if the server is configured, create its items with `rye mcp refresh {server}`; otherwise add the server with `rye mcp add`"));
                }
                Some("remove the pattern, or correct it to the dotted id of an item that exists".into())
                })
            }),
            Self::ExceedsBase { base, .. } => Some(format!("narrow the pattern, or grant it in `{base}` too")),
            Self::OpensMoreThanBase { base, opening, granted, .. } if granted.is_empty() => {
                Some(format!("remove `{opening}`, or add it to the grant of `{base}` too"))
            }
            Self::OpensMoreThanBase { base, opening, granted, .. } => Some(format!(
                "keep `{opening}` within `{opening}=\"{granted}\"`, or extend the grant of `{base}` too"
            )),
            Self::UngrantedCall { capability, .. } => {
                Some(format!("grant `{capability}` in `<permissions>`, or remove the call from the body: without a grant, the call is denied"))
            }
            Self::AcknowledgesNothing { .. } => {
                Some("remove the acknowledgement: it would silently cover grants that are added later".into())
            }
            Self::Repeated { .. } => {
                Some("remove one of the two, or correct it".into())
            }
            Self::OpensNothing { .. } => {
                Some("name folders relative to the project: `write=\"src/,target/\"`; paths outside the project cannot be granted".into())
            }
            Self::VoidBound { entries, wide, tool, .. } => Some(format!(
                "narrow `{wide}` so that it no longer includes `{tool}`, or add `write=\"{entries}\"` to it"
            )),
            Self::UnusedOpening { opening, entries, server, .. } => Some(match server {
                Some(server) => format!(
                    "add `\"needs\": {{\"{opening}\": [\"{}\"]}}` to the server `{server}` in its settings and run `rye mcp refresh {server}`, or remove `{opening}`",
                    entries.replace(',', "\", \"")
                ),
                None => format!("remove `{opening}=\"{entries}\"`, or grant a tool that uses it"),
            }),
            Self::DeadGrant { add, tokens, .. } => Some(match add {
                Some(add) => format!(
                    "write `{add}`, or remove the grant: the model is not offered the tool, whose definition would cost {tokens} tokens in every request"
                ),
                None => "raise the limit, or remove the grant".to_owned(),
            }),
            Self::BlockedGrant { tokens: Some(tokens), .. } => Some(format!(
                "narrow the condition of the hook, or remove the grant: the tool's definition costs {tokens} tokens in every request"
            )),
            Self::BlockedGrant { tokens: None, .. } => {
                Some("narrow the condition of the hook, or remove the grant".into())
            }
            Self::UnusedHookGrant { .. } => Some("remove the grant".into()),
            Self::OutsideGrant { .. } => Some("correct the argument, or extend the grant".into()),
            Self::WholeNetwork { .. } => Some(
                "use a tool of `kind: http`, which reaches only the named hosts; or write `net=\"*\"` to state that the program gets the whole network"
                    .into(),
            ),
            Self::OnlyWhatIsThere { .. } => Some(
                "name the folders that the tool writes, such as `write=\"out/\"` (missing folders are created); or use the \
                 file tools, which can create files anywhere in the project"
                    .into(),
            ),
            Self::TooComplex { .. } => Some("use fewer wildcards in this pattern and in the base's grants".into()),
            Self::Blocked { pattern, table: Some(_), .. } => Some(format!(
                "add an entry with the right risk to `classifications`, such as `- {{ risk: safe, patterns: [\"{pattern}\"] }}`: the list replaces the standard list, and unlisted capabilities are `unrestricted`"
            )),
            Self::Unacknowledged { tier, .. } | Self::Blocked { tier, table: None, .. } => Some(format!(
                "grant less, or acknowledge the risk: `<acknowledge risk=\"{tier}\">why</acknowledge>` in \
                 `<permissions>`"
            )),
        }
    }

    fn labels(&self) -> Vec<Label> {
        match self {
            Self::DeadGrant { span, .. } => vec![new_label(*span, "allows no call")],
            Self::BlockedGrant { span, hook_span, .. } => {
                vec![new_label(*span, "allows no call"), new_label(*hook_span, "blocks every call")]
            }
            Self::UnusedHookGrant { span, .. } => vec![new_label(*span, "never used")],
            Self::OutsideGrant { span, granted, .. } => {
                let granted = granted.iter().map(|span| new_label(*span, "these are the grants"));
                std::iter::once(new_label(*span, "will be refused")).chain(granted).collect()
            }
            Self::MatchesNothing { span, .. } => vec![new_label(*span, "no item id matches")],
            Self::ExceedsBase { span, base_span, base, .. } => {
                vec![new_label(*span, "granted here"), new_label(*base_span, format!("`{base}` grants only this"))]
            }
            Self::OpensMoreThanBase { span, base_span, base, .. } => {
                vec![new_label(*span, "granted here"), new_label(*base_span, format!("`{base}` opens less"))]
            }
            Self::UngrantedCall { span, granted, .. } => {
                vec![new_label(*span, "will be denied"), new_label(*granted, "these are the grants")]
            }
            Self::Repeated { first, second, .. } => {
                vec![new_label(*second, "second occurrence"), new_label(*first, "first occurrence")]
            }
            Self::AcknowledgesNothing { span, .. } => vec![new_label(*span, "no effect")],
            Self::VoidBound { span, wide_span, .. } => {
                vec![new_label(*span, "bounds nothing"), new_label(*wide_span, "names no folder")]
            }
            Self::OpensNothing { span, .. } | Self::UnusedOpening { span, .. } => {
                vec![new_label(*span, "granted here")]
            }
            Self::WholeNetwork { span, .. } => vec![new_label(*span, "opens the whole network")],
            Self::OnlyWhatIsThere { span, .. } => vec![new_label(*span, "existing files only")],
            Self::TooComplex { span, base_span, .. } => {
                vec![
                    new_label(*span, "this pattern counts as outside the base's grants"),
                    new_label(*base_span, "the base's grants"),
                ]
            }
            Self::Unacknowledged { tier, span, .. } => vec![new_label(*span, format!("risk `{tier}`"))],
            Self::Blocked { pattern, tier, span, table, .. } => {
                let label = new_label(*span, format!("risk `{tier}` is blocked by the risk table"));
                let table = table.iter().map(|table| new_label(*table, format!("no entry for `{pattern}`")));
                std::iter::once(label).chain(table).collect()
            }
        }
    }
}
