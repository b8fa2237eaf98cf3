//! Edits whose direction follows from their kind: values are drawn from a seed, conditions are composed so that one
//! implies the other.

use super::projects::EditedProject;
use super::rng::Rng;

/// The direction of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedDirection {
    /// Less is allowed, so the reverse edit allows more.
    Narrower,
    /// The edit and its reverse neither allow nor forbid anything.
    Neutral,
}

use ExpectedDirection::{Narrower, Neutral};

pub struct PlanEdit {
    file: String,
    from: String,
    to: String,
    pub truth: ExpectedDirection,
    /// The edited file before the edit, if it differs from the project's file.
    pub base: Vec<(String, String)>,
    /// The edited file after the edit.
    pub changes: Vec<(String, String)>,
}

impl PlanEdit {
    pub fn name(&self) -> String {
        format!("{}: `{}` → `{}`", self.file, self.from, self.to)
    }
}

const HOOKS: &str = ".ai/config/agent/hooks.yaml";
const ROOT: &str = ".ai/directives/root.md";
const CHILD: &str = ".ai/directives/child.md";
const GRANDCHILD: &str = ".ai/directives/grandchild.md";
const DEPLOY: &str = ".ai/tools/p/deploy.yaml";
const RESILIENCE: &str = ".ai/config/agent/resilience.yaml";
const AGENT: &str = ".ai/config/agent/agent.yaml";
const RISKS: &str = ".ai/config/agent/capability_risk.yaml";
const MAIN: &str = ".ai/directives/deploy_staging.md";
const REVIEW: &str = ".ai/directives/review.md";

/// The edited file, the text that is replaced, its replacement, and the direction. If the replaced text is empty, the
/// replacement is appended to the file or becomes a new file.
type Row = (&'static str, &'static str, &'static str, ExpectedDirection);

const OF_ROOT: &[Row] = &[
    // Grants.
    (ROOT, "<tool>p.*</tool>", "<tool>p.probe</tool>", Narrower),
    (ROOT, "<tool>p.*</tool>", "", Narrower),
    (ROOT, "<tool>p.*</tool>", "<tool>p.deploy</tool>\n<tool>p.probe</tool>", Narrower),
    (ROOT, "<tool>p.*</tool>", "<tool>p.*</tool>\n<tool>p.probe</tool>", Neutral),
    (ROOT, "<tool>p.*</tool>", "<tool>p/*</tool>", Neutral),
    (ROOT, "<tool>rye.file-system.read</tool>\n", "", Narrower),
    (ROOT, "out/,log/", "out/", Narrower),
    (ROOT, "out/,log/", "log/,out/", Neutral),
    (ROOT, "write=\"out/\"", "write=\"out/reports/\"", Narrower),
    (ROOT, "*.a.test,b.test", "*.a.test", Narrower),
    (ROOT, "*.a.test,b.test", "x.a.test,b.test", Narrower),
    (ROOT, "net=\"*.a.test,b.test\" ", "", Narrower),
    (ROOT, "rye.bash.*", "rye.bash.bash", Narrower),
    (ROOT, "<knowledge>team.*</knowledge>", "<knowledge>team.people</knowledge>", Narrower),
    (ROOT, "<fetch><knowledge>team.*</knowledge></fetch>\n", "", Narrower),
    (ROOT, "<acknowledge risk=\"elevated\">Deploys.</acknowledge>\n", "", Narrower),
    (ROOT, "Deploys.</acknowledge>", "It deploys.</acknowledge>", Neutral),
    // Models.
    (ROOT, "tier=\"general\" fallback=\"fast\"", "tier=\"general\"", Neutral),
    (ROOT, "tier=\"general\" fallback=\"fast\"", "tier=\"fast\"", Narrower),
    (ROOT, "tier=\"general\"", "id=\"claude-sonnet-5-5\"", Neutral),
    // Text.
    (ROOT, "Do root for", "Please do root for", Neutral),
    (ROOT, "Does root.", "Does the root.", Neutral),
    (ROOT, "# root", "# Another title\n\nAnd more prose.", Neutral),
    (ROOT, "<system>style</system>", "", Neutral),
    (ROOT, "<before>rules</before>", "<after>rules</after>", Neutral),
    (ROOT, "<before>rules</before>", "<before>rules</before><before>style</before>", Neutral),
    (ROOT, "<context>", "<context><suppress>house</suppress>", Neutral),
    (ROOT, "version=\"1.0.0\"", "version=\"1.2.0\"", Neutral),
    (ROOT, "<limits turns=\"20\" tokens=\"300000\"", "<limits tokens=\"300000\" turns=\"20\"", Neutral),
    (ROOT, "turns=\"20\"", "max_turns=\"20\"", Neutral),
    // Inputs and outputs.
    (ROOT, "staging,canary,test", "staging,canary", Narrower),
    (ROOT, "staging,canary,test", "canary,test,staging", Neutral),
    (ROOT, ">where</input>", ">where it goes</input>", Neutral),
    (ROOT, "name=\"count\" type=\"integer\"", "name=\"number\" type=\"integer\"", Neutral),
    (ROOT, "<outputs>\n", "<outputs>\n<output name=\"size\" type=\"integer\">how large</output>\n", Neutral),
    (ROOT, "required=\"true\">where it", "required=\"false\">where it", Neutral),
    // Hooks of the directive.
    (ROOT, " &amp;&amp; turn &gt; 6", "", Narrower),
    // Another guard blocks these calls too.
    (ROOT, "turn &gt; 6", "turn &gt;= 6", Neutral),
    (ROOT, "too late", "much too late", Neutral),
    (ROOT, "id=\"own_guard\"", "id=\"my_guard\"", Neutral),
    // Parents.
    (ROOT, " extends=\"base\"", "", Neutral),
    (".ai/directives/base.md", "<before>house</before>", "<before>house</before><before>rules</before>", Neutral),
    (".ai/directives/base.md", "Does base.", "Does nothing.", Neutral),
    // Tools.
    (DEPLOY, "Deploys.", "Deploys a service.", Neutral),
    (DEPLOY, "kind: command", "# The command.\nkind: command", Neutral),
    (DEPLOY, "maximum: 9", "maximum: 5", Narrower),
    (DEPLOY, "minimum: 1", "minimum: 2", Narrower),
    (DEPLOY, "enum: [a, b, c]", "enum: [a, c]", Narrower),
    (DEPLOY, "maxLength: 20", "maxLength: 10", Narrower),
    (DEPLOY, "type: object", "type: object\n  required: [mode]", Narrower),
    (DEPLOY, "type: object", "type: object\n  additionalProperties: false", Narrower),
    (DEPLOY, "maximum: 9", "maximum: 9, description: How large", Neutral),
    (DEPLOY, "timeout_seconds: 60", "timeout_seconds: 30", Narrower),
    (DEPLOY, "[REGION, TOKEN]", "[REGION]", Narrower),
    (DEPLOY, "[REGION, TOKEN]", "[TOKEN, REGION]", Neutral),
    (DEPLOY, "net: [a.test, b.test]", "net: [a.test]", Narrower),
    (DEPLOY, "write: [out/]", "write: []", Narrower),
    (DEPLOY, "kind: command", "version: 2.0.0\nkind: command", Neutral),
    // Settings.
    (RESILIENCE, "max_retries: 5", "max_retries: 2", Narrower),
    (RESILIENCE, "max_concurrent_children: 6", "max_concurrent_children: 2", Narrower),
    (RESILIENCE, "max_bytes: 20000", "max_bytes: 10000", Narrower),
    (RESILIENCE, "retry:", "# Repeated calls.\nretry:", Neutral),
    (AGENT, "headless: allow", "headless: deny", Narrower),
    (AGENT, "require: none", "require: shared", Narrower),
    (AGENT, "approvals", "# No terminal.\napprovals", Neutral),
    (RISKS, "", "risk_levels: { write: { policy: acknowledge_required } }\n", Narrower),
    (RISKS, "", "risk_levels: { elevated: { policy: block } }\n", Neutral),
    // Knowledge.
    (".ai/knowledge/rules.md", "Be careful.", "Be very careful.", Neutral),
    (".ai/knowledge/done.md", "", "And why.\n", Neutral),
    (".ai/knowledge/house.md", "polite", "friendly", Neutral),
    (".ai/knowledge/team/people.md", "Ann and Bob", "Ann, Bob and Cy", Neutral),
    // Hooks of the project.
    (HOOKS, "hooks:\n", "# Guards.\nhooks:\n", Neutral),
    (HOOKS, "id: no_rm", "id: no_removal", Neutral),
    (HOOKS, "reason: no }", "reason: never }", Neutral),
    (HOOKS, "contains \"rm -r\"", "contains \"rm\"", Narrower),
    (HOOKS, "action: escalate", "action: terminate", Narrower),
    (HOOKS, " && turn > 3", "", Narrower),
    (HOOKS, "[\"p/deploy\", \"p/probe\"]", "[\"p/deploy\", \"p/probe\", \"rye/bash/bash\"]", Narrower),
    (HOOKS, "cost.turns >= 9", "cost.turns >= 4", Narrower),
    (HOOKS, "cost.turns >= 9", "!(cost.turns < 9)", Neutral),
    (HOOKS, "cost.turns >= 9", "cost.turns >= 9 || cost.spend > 0.5", Narrower),
    (HOOKS, "value: 30", "value: 25", Narrower),
    (HOOKS, "attempt < 4", "attempt < 2", Narrower),
    (HOOKS, "attempt < 4", "attempt < 4 && error.code == \"x\"", Narrower),
    (HOOKS, "cost.turns > 2", "cost.turns > 7", Narrower),
    (HOOKS, "turn < 3", "turn < 2", Narrower),
    (HOOKS, "enabled: false, ", "", Narrower),
    (HOOKS, "id: off, event: tool_call, enabled: false", "id: on, event: tool_call", Narrower),
    (
        HOOKS,
        "",
        "  - { id: late, event: tool_call, condition: 'turn > 12', action: { block: { reason: late } } }\n",
        Narrower,
    ),
    (HOOKS, "", "  - { id: stop, event: after_step, condition: 'cost.spend > 0.3', action: terminate }\n", Narrower),
];

/// Edits of the directives that the root can start.
const OF_FAMILY: &[Row] = &[
    (ROOT, "<directive>child</directive>\n", "", Narrower),
    (CHILD, "<tool net=\"*.b.test\">rye.bash.bash</tool>\n", "", Narrower),
    (CHILD, "net=\"*.b.test\"", "net=\"x.b.test\"", Narrower),
    (CHILD, "<directive>grandchild</directive>\n", "", Narrower),
    (CHILD, "Do child for", "Kindly do child for", Neutral),
    (CHILD, "turns=\"6\"", "turns=\"5\"", Narrower),
    (CHILD, "spend=\"0.20\"", "spend=\"0.10\"", Narrower),
    (GRANDCHILD, "<tool>p.probe</tool>", "", Narrower),
    (GRANDCHILD, "turns=\"4\"", "turns=\"2\"", Narrower),
    (GRANDCHILD, "Do grandchild", "Do the grandchild", Neutral),
];

const OF_DEPLOY: &[Row] = &[
    (MAIN, "<tool>rye.file-system.write</tool>", "", Narrower),
    (MAIN, "<tool>rye.file-system.write</tool>", "<tool write=\"logs/\">rye.file-system.write</tool>", Narrower),
    (MAIN, "turns=\"8\"", "turns=\"6\"", Narrower),
    (MAIN, "spend=\"0.20\"", "spend=\"0.15\"", Narrower),
    (MAIN, "project.deploy.*", "project.deploy.rollout", Narrower),
    (MAIN, "enum=\"staging,canary\"", "enum=\"staging\"", Narrower),
    (MAIN, "Deploy `", "Now deploy `", Neutral),
    (MAIN, "<suppress>rye/agent/core/protocol/sign</suppress>", "", Neutral),
    (MAIN, "<fetch><knowledge>project.*</knowledge></fetch>", "", Narrower),
    (
        MAIN,
        "<output name=\"healthy\" type=\"boolean\" required=\"true\">",
        "<output name=\"healthy\" type=\"boolean\">",
        Neutral,
    ),
    (".ai/tools/project/deploy/rollout.yaml", "enum: [staging, canary]", "enum: [staging]", Narrower),
    (".ai/tools/project/deploy/rollout.yaml", "timeout_seconds: 20", "timeout_seconds: 10", Narrower),
    (".ai/tools/project/deploy/rollout.yaml", "Name of the service", "The service", Neutral),
    (HOOKS, "inputs.target == \"canary\"", "inputs.target != \"staging\"", Neutral),
    (HOOKS, "description: Every deploy", "description: Each deploy", Neutral),
    (".ai/knowledge/project/deploy/environment-rules.md", "", "One more rule.\n", Neutral),
    (".ai/directives/project/deploy/base.md", "This directive only", "It only", Neutral),
];

const OF_REVIEW: &[Row] = &[
    (REVIEW, "<tool>rye.file-system.grep</tool>\n", "", Narrower),
    (REVIEW, "write=\"reports/\"", "write=\"reports/today/\"", Narrower),
    (REVIEW, "turns=\"12\"", "turns=\"9\"", Narrower),
    (REVIEW, "spend=\"0.25\"", "spend=\"0.25\" tokens=\"50000\"", Narrower),
    (REVIEW, "worst finding first", "the worst finding first", Neutral),
    (REVIEW, "<before>project/review-rules</before>", "<after>project/review-rules</after>", Neutral),
    (REVIEW, "default=\"sample\"", "required=\"true\"", Neutral),
    (REVIEW, "type=\"integer\" required=\"true\"", "type=\"number\" required=\"true\"", Neutral),
    (".ai/knowledge/project/review-rules.md", "", "Be exact.\n", Neutral),
];

/// Returns the edits of a project.
pub fn of_project(project: &EditedProject) -> Vec<PlanEdit> {
    let rows = match (project.name, project.directive) {
        ("guarded", _) => OF_ROOT,
        ("family", _) => OF_FAMILY,
        (_, "review") => OF_REVIEW,
        _ => OF_DEPLOY,
    };
    let mut edits: Vec<PlanEdit> =
        rows.iter().map(|(file, from, to, truth)| edit(project, file, from, to, *truth)).collect();
    if project.name == "guarded" {
        edits.extend(drawn(project));
    }
    edits
}

fn edit(project: &EditedProject, file: &str, from: &str, to: &str, truth: ExpectedDirection) -> PlanEdit {
    let text = project.files.get(file).cloned().unwrap_or_default();
    assert!(from.is_empty() || text.contains(from), "{file} has no `{from}`");
    let new = if from.is_empty() { format!("{text}{to}") } else { text.replacen(from, to, 1) };
    let (file, from, to) = (file.to_owned(), from.to_owned(), to.to_owned());
    PlanEdit { base: Vec::new(), changes: vec![(file.clone(), new)], file, from, to, truth }
}

/// Limits of the root with their values.
const LIMITS: [(&str, usize); 6] =
    [("turns", 20), ("tokens", 300_000), ("spawns", 6), ("depth", 3), ("duration_seconds", 500), ("output", 4096)];

/// Draws lower limits, and guards and licenses with conditions of which one implies the other.
fn drawn(project: &EditedProject) -> Vec<PlanEdit> {
    let rng = &mut Rng::new(16);
    let mut edits = Vec::new();
    for (name, value) in LIMITS {
        let lower = 1 + rng.below(value - 1);
        let (from, to) = (format!("{name}=\"{value}\""), format!("{name}=\"{lower}\""));
        edits.push(edit(project, ROOT, &from, &to, Narrower));
    }
    for n in 0..40 {
        let (narrow, wide) = implied(rng, 2);
        let (event, action, is_guard) = rng.one_of(&[
            ("tool_call", "{ block: { reason: no } }", true),
            ("agent_end", "{ block: { reason: no } }", false),
            ("after_step", "terminate", true),
            ("after_step", "continue", false),
            ("agent_end", "{ follow_up: { content: more } }", false),
        ]);
        // To narrow, a guard has to fire more often, and a hook that lets the thread do more has to fire less often.
        let (before, after) = if is_guard { (narrow, wide) } else { (wide, narrow) };
        let hook = |condition: &str| {
            format!("  - {{ id: drawn{n}, event: {event}, layer: 1, condition: '{condition}', action: {action} }}\n")
        };
        let mut with = EditedProject { files: project.files.clone(), ..*project };
        with.files.get_mut(HOOKS).unwrap().push_str(&hook(&before));
        let mut one = edit(&with, HOOKS, &hook(&before), &hook(&after), Narrower);
        one.base = vec![(HOOKS.to_owned(), with.files[HOOKS].clone())];
        edits.push(one);
    }
    edits
}

fn atom(rng: &mut Rng) -> String {
    let n = 2 + rng.below(8);
    match rng.below(5) {
        0 => format!("turn > {n}"),
        1 => format!("cost.turns >= {n}"),
        2 => format!("cost.spend > 0.{n}"),
        3 => format!("cost.turns in [{n}, 40]"),
        _ => format!("cost.input_tokens > {n}000"),
    }
}

/// Draws two conditions, of which the first implies the second and not the other way round.
fn implied(rng: &mut Rng, depth: usize) -> (String, String) {
    let (n, m) = (2 + rng.below(4), 1 + rng.below(3));
    match rng.below(if depth == 0 { 4 } else { 7 }) {
        0 => (format!("turn > {}", n + m), format!("turn > {n}")),
        1 => (format!("cost.turns < {n}"), format!("cost.turns <= {}", n + m)),
        2 => (format!("turn == {n}"), format!("turn in [{n}, {}]", n + m)),
        3 => (format!("cost.turns == {n}"), format!("cost.turns != {}", n + m)),
        4 => {
            let (narrow, wide) = implied(rng, depth - 1);
            // A fact that neither condition reads.
            let other = format!("cost.output_tokens > {}00", 1 + rng.below(9));
            (format!("({narrow}) && {other}"), format!("({wide}) && {other}"))
        }
        5 => {
            let (narrow, wide) = implied(rng, depth - 1);
            (format!("!({wide})"), format!("!({narrow})"))
        }
        _ => {
            let one = atom(rng);
            (format!("{one} && cost.elapsed_seconds > 7"), one)
        }
    }
}
