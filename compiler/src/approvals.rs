//! Approvals (`language.md`, Capabilities): the grants whose calls need an approval according to the risk table, and
//! the policy for these calls when there is no terminal. Callers decide how to request an approval.

use rye_grammar::ItemId;
use rye_grammar::data::{Kind, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::item::Items;
use crate::plan::Plan;
use crate::primary::{ItemType, Primary, format_capability};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::risk::{Policy, Tier};
use crate::tool_spec::ToolKind;
use crate::trust::requirement_of_tool;
use crate::world::{Space, World};

/// The policy for calls that need an approval when there is no terminal. Later variants are stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeadlessPolicy {
    /// The call runs without an approval.
    Allow,
    /// The thread is suspended before the call until it is approved.
    Queue,
    /// The call is denied, and the thread continues.
    Deny,
}

impl HeadlessPolicy {
    /// Parses the value of `approvals.headless`; `None` for any other word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Allow, Self::Queue, Self::Deny].into_iter().find(|way| way.as_str() == word)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Queue => "queue",
            Self::Deny => "deny",
        }
    }

    /// Describes the effect of the policy on a call, for human output.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Allow => "allowed without approval",
            Self::Queue => "the thread is suspended until `rye threads approve`",
            Self::Deny => "denied",
        }
    }

    /// Reads `approvals.headless` of `agent/agent`: the user's setting, else the setting of the standard library, else
    /// `allow`. An invalid value is `deny`. A project can only make the policy stricter, unless the project is the user
    /// space itself.
    pub fn from_settings(world: &dyn World) -> Self {
        let (items, own) = (Items::new(world), world.project_is_user_space());
        let Ok(id) = ItemId::parse("agent/agent") else { return Self::Deny };
        let nodes = items.config_layers(&id);
        let setting_of = |space: Space| {
            let (_, node) = nodes.iter().find(|(whose, _)| *whose == space)?;
            let approvals = node.get("approvals")?;
            // The check reports the former name `unattended` as an error; a run still applies the value under that
            // name.
            let policy = approvals.get("headless").or_else(|| approvals.get("unattended"));
            // An invalid value is an error that prevents a run. If a caller runs nevertheless, the strictest policy
            // applies.
            if matches!(approvals.kind, Kind::Map(_)) {
                policy.map(|policy| policy.as_str().and_then(Self::parse).unwrap_or(Self::Deny))
            } else {
                Some(Self::Deny)
            }
        };
        let user = if own { setting_of(Space::Project) } else { setting_of(Space::User) };
        let base = user.or_else(|| setting_of(Space::System)).unwrap_or(Self::Allow);
        base.max(setting_of(Space::Project).filter(|_| !own).unwrap_or(base))
    }
}

/// Seconds that an approval request stays open if no setting says otherwise.
pub const DEFAULT_TIMEOUT_SECONDS: u64 = 3_600;

/// Reads `approvals.timeout_seconds` of `agent/agent`: the seconds after which an approval request without an answer
/// suspends its thread. Returns the default if the setting is missing or invalid.
pub fn timeout_seconds(world: &dyn World) -> u64 {
    let items = Items::new(world);
    let setting = items.config_by_name("agent/agent");
    let written = setting.as_deref().and_then(|node| node.get("approvals")?.get("timeout_seconds").map(Node::to_value));
    written.and_then(|value| value.as_u64()).filter(|seconds| *seconds > 0).unwrap_or(DEFAULT_TIMEOUT_SECONDS)
}

/// Returns true for calls that need no approval without a terminal: starts of directives (whose own calls are checked
/// separately), reads of knowledge, runs of tools of the user space, and runs of tools of the project that the user has
/// trusted. Returns false for tools of the standard library, such as a shell or the web, and for tools of the project
/// whose trust does not cover the arguments of their calls.
pub fn is_preapproved(items: &Items<'_>, capability: &str) -> bool {
    let Some(item) = capability.strip_prefix("rye.execute.") else { return false };
    if item.starts_with("directive.") || item.starts_with("knowledge.") {
        return true;
    }
    // The dots of a tool's capability separate the segments of its id, because no segment contains a dot.
    let id = item.strip_prefix("tool.").and_then(|id| ItemId::parse(&id.replace('.', "/")).ok());
    let tool = id.and_then(|id| items.tool(&id));
    tool.is_some_and(|tool| match tool.file.space {
        Space::User => true,
        // The trust in a built-in tool, or in the hosts of an HTTP tool, does not cover the arguments of its calls.
        Space::Project if matches!(tool.spec.kind, ToolKind::Builtin { .. }) => false,
        Space::Project if matches!(tool.spec.kind, ToolKind::Http(_)) && tool.spec.environment.is_empty() => false,
        Space::Project => requirement_of_tool(&tool, String::new(), &items.sources()).is_some(),
        Space::System => false,
    })
}

/// A grant whose calls need an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalRequired {
    pub pattern: String,
    /// The risk tier: `safe`, `write`, `elevated` or `unrestricted`.
    pub tier: String,
    /// True if calls of all tools that the grant reaches run without an approval when there is no terminal.
    #[serde(rename = "vouched")]
    pub is_preapproved: bool,
}

impl ApprovalRequired {
    /// Describes, for human output, that calls of the grant need an approval, and the effect of the headless policy on
    /// them.
    pub fn describe_effect(&self, unattended: HeadlessPolicy) -> String {
        let alone = if self.is_preapproved { HeadlessPolicy::Allow.describe() } else { unattended.describe() };
        format!(
            "approval required for {}: the risk {} is not acknowledged; without a terminal: {alone}",
            self.pattern, self.tier
        )
    }
}

/// Returns the grants of a plan, in order, whose risk tier requires an approval and whose risk `<permissions>` does not
/// acknowledge.
pub fn required_approvals(items: &Items<'_>, plan: &Plan) -> Vec<ApprovalRequired> {
    let risk = |pattern: &str| match plan.settings.risk() {
        Ok(table) => table.map(|table| table.classify_grant(pattern)).map(|risk| (risk.tier, risk.policy)),
        // If the table is invalid, every grant counts as `unrestricted`.
        Err(_) => Some((Tier::Unrestricted, Policy::AcknowledgeRequired)),
    };
    let risks = plan.capabilities.grants.iter().filter_map(|grant| Some((grant, risk(&grant.pattern)?)));
    let needs_approval = |tier: Tier, policy| {
        policy == Policy::AcknowledgeRequired && !plan.capabilities.acknowledged.contains_key(tier.as_str())
    };
    risks
        .filter(|(_, (tier, policy))| needs_approval(*tier, *policy))
        .map(|(grant, (tier, _))| ApprovalRequired {
            pattern: grant.pattern.clone(),
            tier: tier.as_str().to_owned(),
            is_preapproved: is_grant_preapproved(items, tools_of_plan(plan), &grant.pattern),
        })
        .collect()
}

fn tools_of_plan(plan: &Plan) -> impl Iterator<Item = &ItemId> {
    let in_palette = plan.palette.iter().filter_map(|tool| tool.item_id.as_ref());
    in_palette.chain(plan.dropped_tools.iter().map(|tool| &tool.item_id))
}

/// Returns true if a grant allows only calls for which [`is_preapproved`] holds: starts of directives, reads of
/// knowledge, or calls of preapproved tools. Considers only the tools `tools`.
pub(crate) fn is_grant_preapproved<'t>(
    items: &Items<'_>,
    tools: impl Iterator<Item = &'t ItemId>,
    pattern: &str,
) -> bool {
    if ["rye.execute.directive.", "rye.execute.knowledge."].iter().any(|start| pattern.starts_with(start)) {
        return true;
    }
    let only = CapabilitySet::new([pattern.to_owned()]);
    let mut reached = tools
        .map(|id| format_capability(Primary::Execute, ItemType::Tool, Some(id)))
        .filter(|capability| only.first_match(capability).is_some())
        .peekable();
    pattern.starts_with("rye.execute.tool.")
        && reached.peek().is_some()
        && reached.all(|capability| is_preapproved(items, &capability))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::compile::tests::compile_without_inputs;
    use crate::compile::tests::world::stdlib_world;

    #[test]
    fn project_policy_is_never_weaker_than_user_policy() {
        let settings = |way: &str| format!("approvals: {{ headless: {way} }}\n");
        let file = ".ai/config/agent/agent.yaml";
        assert_eq!(HeadlessPolicy::from_settings(&stdlib_world()), HeadlessPolicy::Allow);
        let ways = ["allow", "queue", "deny"];
        for (rank, project) in ways.into_iter().enumerate() {
            let way = |rank: usize| HeadlessPolicy::parse(ways.get(rank).copied().unwrap()).unwrap();
            let world = stdlib_world().project(file, settings(project));
            assert_eq!(HeadlessPolicy::from_settings(&world), way(rank), "{project} over nothing");
            // If the project is the user space itself, its setting counts as the user's setting.
            assert_eq!(HeadlessPolicy::from_settings(&world.as_user_space()), way(rank), "{project} of one's own");
            for (other, user) in ways.into_iter().enumerate() {
                let world = stdlib_world().project(file, settings(project)).with(Space::User, file, settings(user));
                assert_eq!(HeadlessPolicy::from_settings(&world), way(rank.max(other)), "{project} over {user}");
            }
        }
    }

    fn directive(tools: &str, acknowledge: &str) -> String {
        format!(
            "# A\n\n```xml\n<directive name=\"a\" version=\"1\"><metadata><description>d</description>\
             <model provider=\"scripted\" tier=\"fast\"/><permissions><execute>{tools}</execute>{acknowledge}\
             </permissions></metadata></directive>\n```\n\nGo.\n"
        )
    }

    #[test]
    fn unacknowledged_elevated_grant_requires_approval() {
        let listed = |acknowledge: &str| {
            let text = directive("<tool>rye.file-system.read</tool><tool>rye.bash.*</tool>", acknowledge);
            compile_without_inputs(&stdlib_world().project(".ai/directives/a.md", text), "a").approvals_required
        };
        let (pattern, tier) = ("rye.execute.tool.rye.bash.*".to_owned(), "elevated".to_owned());
        assert_eq!(listed(""), [ApprovalRequired { pattern, tier, is_preapproved: false }]);
        assert_eq!(listed("<acknowledge risk=\"elevated\">w</acknowledge>"), []);
    }

    #[test]
    fn user_and_trusted_project_tools_are_preapproved() {
        let command = "description: d\nkind: command\ncommand: [ls]\n";
        let bash = "description: d\nkind: builtin\nbuiltin: bash\n";
        let http = "description: d\nkind: http\nurl: https://a.test/\n";
        let tools = "<tool>own.*</tool><tool>all.*</tool><tool>users.*</tool><tool>asks</tool><tool>rye.git.*</tool>\
            <tool>*</tool><directive>b</directive><knowledge>*</knowledge>";
        let world = stdlib_world()
            .project(".ai/directives/a.md", directive(tools, ""))
            .project(".ai/directives/b.md", directive("", "").replace("\"a\"", "\"b\""))
            .project(".ai/tools/own/one.yaml", command)
            .project(".ai/tools/all/one.yaml", command)
            .project(".ai/tools/all/shell.yaml", bash)
            .project(".ai/tools/asks.yaml", http)
            .with(Space::User, ".ai/tools/users/one.yaml", http);
        let listed = compile_without_inputs(&world, "a").approvals_required;
        let preapproved: Vec<&str> =
            listed.iter().filter(|one| one.is_preapproved).map(|one| one.pattern.as_str()).collect();
        assert_eq!(
            preapproved,
            [
                "rye.execute.tool.own.*",
                "rye.execute.tool.users.*",
                "rye.execute.directive.b",
                "rye.execute.knowledge.*"
            ]
        );
        let waits: Vec<&str> =
            listed.iter().filter(|one| !one.is_preapproved).map(|one| one.pattern.as_str()).collect();
        assert_eq!(
            waits,
            ["rye.execute.tool.all.*", "rye.execute.tool.asks", "rye.execute.tool.rye.git.*", "rye.execute.tool.*"]
        );
        let items = Items::new(&world);
        for strange in ["rye.execute", "rye.sign.tool.own.one", "rye.execute.tool.no.such", "rye.execute.tool.", "x"] {
            assert!(!is_preapproved(&items, strange), "{strange}");
        }
    }
}
