//! The risk of capabilities and grants, by the table `capability_risk.yaml` (`language.md` 9).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use rye_grammar::capability::{MAX_WILDCARDS, Pattern, normalize, wildcards};

use super::capability::{ItemType, Primary};
use super::glob::Glob;
use super::glob::inclusion::{Witness, witness};

/// Risk tiers, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    Safe,
    Write,
    Elevated,
    Unrestricted,
}

impl Tier {
    pub const ALL: [Self; 4] = [Self::Safe, Self::Write, Self::Elevated, Self::Unrestricted];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tier| tier.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Write => "write",
            Self::Elevated => "elevated",
            Self::Unrestricted => "unrestricted",
        }
    }

    /// Returns the policy of a tier that the risk table does not list.
    fn default_policy(self) -> Policy {
        match self {
            Self::Safe | Self::Write => Policy::Allow,
            Self::Elevated => Policy::AcknowledgeRequired,
            Self::Unrestricted => Policy::Block,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    Allow,
    AcknowledgeRequired,
    Block,
}

impl Policy {
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Allow, Self::AcknowledgeRequired, Self::Block].into_iter().find(|policy| policy.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::AcknowledgeRequired => "acknowledge_required",
            Self::Block => "block",
        }
    }
}

/// The risk of one capability or grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Risk {
    pub tier: Tier,
    pub policy: Policy,
    /// The pattern of the risk table that decided; `None` if no pattern matches.
    pub pattern: Option<String>,
}

/// The risk table: a policy per tier, and patterns per tier.
#[derive(Debug, Clone)]
pub struct RiskTable {
    policies: BTreeMap<Tier, Policy>,
    rules: Vec<RiskRule>,
}

#[derive(Debug, Clone)]
struct RiskRule {
    tier: Tier,
    written: String,
    /// The pattern in normalized form; `written` is the pattern as the table spells it.
    normal: String,
    glob: Glob,
}

/// An error in a risk table; `at` is the path of the faulty value, such as `classifications.2.risk`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{at}`: {message}")]
pub struct RiskTableError {
    pub at: String,
    pub message: String,
}

/// The built-in table, which applies if there is no file (`language.md` 9).
const BUILT_IN: [(Tier, &[&str]); 4] = [
    (Tier::Unrestricted, &["rye.*"]),
    (
        Tier::Elevated,
        &["rye.execute.tool.rye.bash.*", "rye.execute.tool.rye.shell.*", "rye.execute.tool.rye.web.*", "rye.execute.*"],
    ),
    (Tier::Write, &["rye.execute.tool.rye.file-system.*"]),
    (
        Tier::Safe,
        &[
            "rye.execute.tool.rye.file-system.read",
            "rye.execute.tool.rye.file-system.ls",
            "rye.execute.tool.rye.file-system.glob",
            "rye.execute.tool.rye.file-system.grep",
            "rye.fetch.*",
            "rye.sign.*",
        ],
    ),
];

/// Returns true if the built-in table contains exactly this pattern.
pub(crate) fn is_built_in_pattern(pattern: &Pattern) -> bool {
    BUILT_IN.iter().any(|(_, patterns)| patterns.contains(&pattern.0.as_str()))
}

impl Default for RiskTable {
    fn default() -> Self {
        let mut table = Self { policies: BTreeMap::new(), rules: Vec::new() };
        for (tier, patterns) in BUILT_IN {
            for pattern in patterns {
                table.add(tier, pattern);
            }
        }
        table
    }
}

impl RiskTable {
    /// Reads the content of `capability_risk.yaml`.
    ///
    /// # Errors
    /// The table has an unknown tier, policy or key, or the wrong shape.
    pub fn from_value(value: &Value) -> Result<Self, RiskTableError> {
        let fault = |at: String, message: String| RiskTableError { at, message };
        let mut table = Self { policies: BTreeMap::new(), rules: Vec::new() };
        let map = value.as_object().ok_or_else(|| fault(String::new(), "the table has to be a mapping".into()))?;
        for (key, value) in map {
            match key.as_str() {
                "risk_levels" => table.read_levels(value)?,
                "classifications" => table.read_rules(value)?,
                _ => {
                    return Err(fault(
                        key.clone(),
                        "unknown key; a risk table has only `risk_levels` and `classifications`".into(),
                    ));
                }
            }
        }
        Ok(table)
    }

    fn read_levels(&mut self, value: &Value) -> Result<(), RiskTableError> {
        let fault = |at: String, message: &str| RiskTableError { at, message: message.into() };
        let levels = value.as_object().ok_or_else(|| fault("risk_levels".into(), "has to be a mapping of tiers"))?;
        for (name, level) in levels {
            let at = format!("risk_levels.{name}");
            let tier = Tier::parse(name)
                .ok_or_else(|| fault(at.clone(), "a tier must be `safe`, `write`, `elevated` or `unrestricted`"))?;
            let policy = level
                .get("policy")
                .and_then(Value::as_str)
                .and_then(Policy::parse)
                .ok_or_else(|| fault(at, "a policy must be `allow`, `acknowledge_required` or `block`"))?;
            self.policies.insert(tier, policy);
        }
        Ok(())
    }

    fn read_rules(&mut self, value: &Value) -> Result<(), RiskTableError> {
        let fault = |at: String, message: &str| RiskTableError { at, message: message.into() };
        let rules = value.as_array().ok_or_else(|| fault("classifications".into(), "has to be a list"))?;
        for (i, rule) in rules.iter().enumerate() {
            let at = |key: &str| format!("classifications.{i}.{key}");
            let tier = rule
                .get("risk")
                .and_then(Value::as_str)
                .and_then(Tier::parse)
                .ok_or_else(|| fault(at("risk"), "a tier must be `safe`, `write`, `elevated` or `unrestricted`"))?;
            let patterns = rule
                .get("patterns")
                .and_then(Value::as_array)
                .ok_or_else(|| fault(at("patterns"), "has to be a list of patterns"))?;
            for pattern in patterns {
                let pattern = pattern.as_str().ok_or_else(|| fault(at("patterns"), "a pattern must be a string"))?;
                if wildcards(pattern) > MAX_WILDCARDS {
                    return Err(fault(
                        at("patterns"),
                        &format!("a pattern can have at most {MAX_WILDCARDS} wildcards"),
                    ));
                }
                self.add(tier, pattern);
            }
        }
        Ok(())
    }

    fn add(&mut self, tier: Tier, pattern: &str) {
        let normal = normalize(pattern).0;
        self.rules.push(RiskRule { tier, written: pattern.to_owned(), glob: Glob::new(&normal), normal });
    }

    /// Returns the patterns of all rules in normalized form, in which primaries and separators are written as in
    /// capabilities.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| rule.normal.as_str())
    }

    /// Returns the patterns of one tier in normalized form, in which primaries and separators are written as in
    /// capabilities.
    pub fn patterns_of(&self, tier: Tier) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(move |rule| rule.tier == tier).map(|rule| rule.normal.as_str())
    }

    pub fn policy(&self, tier: Tier) -> Policy {
        self.policies.get(&tier).copied().unwrap_or_else(|| tier.default_policy())
    }

    /// Classifies one capability. The matching pattern with the most literal characters decides; if two patterns are
    /// equally specific, the one with the higher tier decides.
    pub fn classify(&self, capability: &str) -> Risk {
        self.risk(self.matching(&normalize(capability).0))
    }

    /// Classifies a grant. If the pattern of the grant has wildcards, the risk is the highest of these tiers: the tier
    /// of the pattern's text, which is classified like a capability, and the tiers of all capabilities that the pattern
    /// matches.
    pub fn classify_grant(&self, pattern: &str) -> Risk {
        let pattern = normalize(pattern).0;
        let by_text = self.matching(&pattern);
        let grant = Glob::new(&pattern);
        if grant.is_literal() {
            return self.risk(by_text);
        }
        if let Some(reach) = PatternReach::of(&pattern).filter(|_| self.has_only_prefix_rules()) {
            return self.classify_reach(by_text, &reach);
        }
        let reached = self.rules.iter().filter(|rule| self.decides_part_of(rule, &grant)).max_by_key(|rule| rule.tier);
        let all: Vec<&Glob> = self.rules.iter().map(|rule| &rule.glob).collect();
        if by_text.is_none() || witness(&[&grant], &all) != Witness::None {
            return self.risk(None);
        }
        self.risk(by_text.into_iter().chain(reached).max_by_key(|rule| rule.tier))
    }

    /// Returns true if a grant `prefix*` can be classified by comparing prefixes, without an automaton. This requires
    /// that the pattern of every rule is a prefix with `*` or a single capability. It also requires that there are
    /// fewer rules than characters that can follow a prefix. With more rules, a rule for each next character could
    /// exist, and these rules together could cover a prefix that no single rule covers.
    fn has_only_prefix_rules(&self) -> bool {
        self.rules.len() < ALPHABET_SIZE
            && self.rules.iter().all(|rule| PatternReach::from_rule(&rule.normal).is_some())
    }

    /// Variant of [`RiskTable::classify_grant`] with the same result, for a grant of the form `prefix*`: comparing
    /// prefixes is enough. The caller guarantees that the pattern of every rule is either one capability or a prefix
    /// with `*`. `by_text` is the rule that classifies the text of the grant.
    fn classify_reach(&self, by_text: Option<&RiskRule>, grant: &PatternReach<'_>) -> Risk {
        let rules: Vec<(&RiskRule, PatternReach<'_>)> =
            self.rules.iter().filter_map(|rule| Some((rule, PatternReach::from_rule(&rule.normal)?))).collect();
        if by_text.is_none() || !rules.iter().any(|(_, reach)| reach.covers(grant)) {
            return self.risk(None);
        }
        let decides = |rule: &RiskRule, reach: &PatternReach<'_>| {
            // If `reach` covers `grant`, `grant` is their intersection. If `grant` covers `reach`, `reach` is their
            // intersection.
            let common = if reach.covers(grant) {
                grant
            } else if grant.covers(reach) {
                reach
            } else {
                return false;
            };
            let stronger = |other: &RiskRule| {
                let (literals, specific) = (other.glob.literal_chars(), rule.glob.literal_chars());
                literals > specific || (literals == specific && other.tier > rule.tier)
            };
            !rules.iter().any(|(other, reach)| stronger(other) && reach.covers(common))
        };
        let reached = rules.iter().filter(|(rule, reach)| decides(rule, reach)).map(|(rule, _)| *rule);
        self.risk(by_text.into_iter().chain(reached).max_by_key(|rule| rule.tier))
    }

    /// Returns true if the rule decides the risk of at least one capability that the grant matches, or if the check
    /// would take too many steps.
    fn decides_part_of(&self, rule: &RiskRule, grant: &Glob) -> bool {
        let specific = rule.glob.literal_chars();
        let stronger: Vec<&Glob> = self
            .rules
            .iter()
            .filter(|other| {
                let literals = other.glob.literal_chars();
                literals > specific || (literals == specific && other.tier > rule.tier)
            })
            .map(|other| &other.glob)
            .collect();
        witness(&[grant, &rule.glob], &stronger) != Witness::None
    }

    fn matching(&self, capability: &str) -> Option<&RiskRule> {
        // `min_by_key` keeps the first of equals.
        self.rules
            .iter()
            .filter(|rule| rule.glob.matches(capability))
            .min_by_key(|rule| Reverse((rule.glob.literal_chars(), rule.tier)))
    }

    fn risk(&self, rule: Option<&RiskRule>) -> Risk {
        let tier = rule.map_or(Tier::Unrestricted, |rule| rule.tier);
        Risk { tier, policy: self.policy(tier), pattern: rule.map(|rule| rule.written.clone()) }
    }
}

/// The capabilities that a simple pattern matches. A pattern is simple if it has no wildcard, or only one `*` at its
/// end. Without a wildcard, the pattern matches the capability `literal`; with `*` (`is_prefix`), it matches all
/// capabilities that start with `literal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PatternReach<'p> {
    literal: &'p str,
    is_prefix: bool,
}

/// Number of characters that a capability may contain: letters, digits, `_`, `-` and `.`.
const ALPHABET_SIZE: usize = 65;

impl<'p> PatternReach<'p> {
    /// Returns the capabilities that a grant such as `rye.execute.tool.x*` reaches. The grant must consist of the start
    /// of an id and a `*` as its only wildcard; `None` for any other grant.
    fn of(pattern: &'p str) -> Option<Self> {
        let literal = pattern.strip_suffix('*')?;
        let inside_an_id = ItemType::ALL.iter().any(|kind| {
            Primary::ALL.iter().any(|primary| {
                let item = literal.strip_prefix(&format!("rye.{primary}.{kind}."));
                item.is_some_and(|item| !item.is_empty() && is_id_text(item))
            })
        });
        inside_an_id.then_some(Self { literal, is_prefix: true })
    }

    /// Returns the capabilities that the pattern of a risk rule matches; `None` if the pattern has a wildcard other
    /// than one `*` at the end. Accepts two forms that `of` refuses: a pattern without a wildcard, and a `*` that
    /// replaces more than a part of an id, as in `rye.execute.*`.
    fn from_rule(pattern: &'p str) -> Option<Self> {
        let (literal, is_prefix) = match pattern.strip_suffix('*') {
            Some(literal) => (literal, true),
            None => (pattern, false),
        };
        is_id_text(literal).then_some(Self { literal, is_prefix })
    }

    fn covers(&self, other: &Self) -> bool {
        if self.is_prefix { other.literal.starts_with(self.literal) } else { self == other }
    }
}

/// Returns true if a text has only valid characters of ids, and no segment except the last one is empty.
fn is_id_text(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.chars().all(fits) && !text.starts_with('.') && !text.contains("..")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn grant_has_the_highest_tier_it_reaches() {
        let table = RiskTable::default();
        for (grant, tier) in [
            ("rye.*", Tier::Unrestricted),
            ("*", Tier::Unrestricted),
            ("rye.execute.*", Tier::Elevated),
            ("rye.execute.tool.rye.file-system.*", Tier::Write),
            ("rye.execute.tool.rye.file-system.[rl]*", Tier::Write),
            ("rye.execute.tool.rye.file-system.read", Tier::Safe),
            ("rye.execute.tool.rye.*", Tier::Elevated),
            ("rye.fetch.*", Tier::Safe),
            ("rye.search.knowledge.*", Tier::Safe),
            ("rye.[fs]*.*", Tier::Unrestricted),
            ("rye.execute.directive.project.*", Tier::Elevated),
            ("nothing.at.all", Tier::Unrestricted),
        ] {
            assert_eq!(table.classify_grant(grant).tier, tier, "{grant}");
        }
    }

    /// Automata and prefixes have the same result wherever both apply.
    #[test]
    fn prefix_shortcut_agrees_with_automata() {
        let slow = |table: &RiskTable, pattern: &str| {
            let grant = Glob::new(pattern);
            let by_text = table.matching(pattern);
            let reached = table.rules.iter().filter(|rule| table.decides_part_of(rule, &grant)).max_by_key(|r| r.tier);
            let all: Vec<&Glob> = table.rules.iter().map(|rule| &rule.glob).collect();
            if by_text.is_none() || witness(&[&grant], &all) != Witness::None {
                return table.risk(None);
            }
            table.risk(by_text.into_iter().chain(reached).max_by_key(|rule| rule.tier))
        };
        let partial = RiskTable::from_value(&json!({"classifications": [
            {"risk": "safe", "patterns": ["rye.execute.tool.a.*", "rye.execute.tool.b", "rye.fetch.*"]},
            {"risk": "write", "patterns": ["rye.execute.tool.a.b.*", "rye.execute.tool.a.*", "rye.execute.tool.c.x"]},
        ]}))
        .unwrap();
        for table in [RiskTable::default(), partial] {
            for pattern in [
                "rye.execute.tool.a*",
                "rye.execute.tool.a.*",
                "rye.execute.tool.a.b*",
                "rye.execute.tool.a.b.c*",
                "rye.execute.tool.c*",
                "rye.execute.tool.rye*",
                "rye.execute.tool.rye.*",
                "rye.execute.tool.rye.b*",
                "rye.execute.tool.rye.bash.*",
                "rye.execute.tool.rye.file-system.*",
                "rye.execute.tool.rye.file-system.re*",
                "rye.execute.directive.project.*",
                "rye.fetch.knowledge.x*",
                "rye.sign.tool.x.*",
            ] {
                assert!(PatternReach::of(pattern).is_some() && table.has_only_prefix_rules(), "{pattern}");
                assert_eq!(table.classify_grant(pattern).tier, slow(&table, pattern).tier, "{pattern}");
            }
        }
    }

    #[test]
    fn grant_beyond_all_patterns_is_unrestricted() {
        let table = RiskTable::from_value(&json!({
            "risk_levels": {"safe": {"policy": "allow"}, "unrestricted": {"policy": "acknowledge_required"}},
            "classifications": [{"risk": "safe", "patterns": ["rye.fetch.*", "rye.fetch.tool.a*"]}],
        }))
        .unwrap();
        let reached = table.classify_grant("rye.*");
        assert_eq!(
            (reached.tier, reached.policy, reached.pattern),
            (Tier::Unrestricted, Policy::AcknowledgeRequired, None)
        );
        assert_eq!(table.classify("rye.fetch.tool.ab").pattern.as_deref(), Some("rye.fetch.tool.a*"));
        assert_eq!(table.classify("rye.sign.tool.a").tier, Tier::Unrestricted);
    }

    #[test]
    fn table_errors_name_their_path() {
        let at = |value: Value| RiskTable::from_value(&value).unwrap_err().at;
        assert_eq!(at(json!({"classifications": [{"risk": "mild", "patterns": []}]})), "classifications.0.risk");
        assert_eq!(at(json!({"risk_levels": {"safe": {"policy": "maybe"}}})), "risk_levels.safe");
        assert_eq!(at(json!({"levels": {}})), "levels");
        let many = "*a".repeat(MAX_WILDCARDS + 1);
        assert_eq!(
            at(json!({"classifications": [{"risk": "safe", "patterns": [many]}]})),
            "classifications.0.patterns"
        );
    }
}
