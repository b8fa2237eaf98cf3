//! The palette (`language.md`, Palette): the native tool definitions that a model gets. It contains primaries and,
//! within a token budget, the tools that the thread's capabilities reach. The palette allows no call: the gate decides
//! about each call.

mod needs;
mod reach;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use indexmap::IndexMap;
use rye_grammar::{ItemId, Span};
use serde_json::Value;

use crate::diagnostics::{Diagnostics, PaletteError};
use crate::item::Tool;
use crate::plan::{
    DroppedTool, Grant, InterfaceField, PalettePrimary, PaletteTool, PlannedModel, TextSize, Tokenizer, ToolUse,
};
use crate::primary::{self, DIRECTIVE_RETURN_TOOL, ItemType, PrimaryDefinition, possible_primaries};
use crate::semantics::capability::CapabilitySet;
use crate::semantics::glob::Glob;
use crate::tool_spec::Idempotence;
use crate::wire_tool::instructions;

/// Longest tool name that a provider accepts, in bytes.
pub(crate) const MAX_TOOL_NAME_BYTES: usize = 64;

pub(crate) use needs::{UnmetNeed, missing_needs, unmet_need};
pub(crate) use reach::ToolIndex;

/// The settings of `tool_preload` in `agent/resilience`, which bound the palette.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreloadSettings {
    pub enabled: bool,
    /// Maximum tokens of the definitions of all tools that are not primaries.
    pub max_tokens: u64,
}

impl Default for PreloadSettings {
    fn default() -> Self {
        Self { enabled: true, max_tokens: 2000 }
    }
}

/// A tool that a grant reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedTool {
    pub id: ItemId,
    /// The pattern of the most specific grant that reaches the tool.
    pub grant: String,
    specific: Specificity,
}

/// The specificity of a grant. If several grants reach a tool, the most specific grant counts. A grant of a single tool
/// is more specific than a grant with wildcards. Of two grants with wildcards, the grant with more literal characters
/// is more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Specificity {
    Wildcard(usize),
    Single,
}

impl Specificity {
    fn of(glob: &Glob) -> Self {
        if glob.is_literal() { Self::Single } else { Self::Wildcard(glob.literal_chars()) }
    }
}

/// A tool with the size of its definition.
#[derive(Debug, Clone)]
pub struct SizedTool {
    pub tool: Arc<Tool>,
    /// The schema of the parameters, which all palettes with this tool share.
    pub schema: Arc<Value>,
    pub tokens: u64,
    pub bytes: u64,
}

impl SizedTool {
    pub fn of(tool: Arc<Tool>) -> Self {
        let (tokens, bytes) = definition_size(&tool.spec.description, &tool.spec.parameters);
        let schema = Arc::new(tool.spec.parameters.clone());
        Self { tool, schema, tokens, bytes }
    }
}

/// The palette, the dropped tools, and the pattern that grants each tool, by tool name. The pattern is `None` if no
/// directive of the extends chain declares permissions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Palette {
    pub tools: Vec<PaletteTool>,
    pub dropped: Vec<DroppedTool>,
    pub grants: BTreeMap<String, Option<String>>,
}

/// The size of a first request without the directive's system prompt and messages. The size depends only on the tools
/// and the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpeningSize {
    /// Tokens of the tool definitions or, for a model without native tool use, of the instructions that replace them.
    pub tokens: u64,
    /// Upper bound on the input tokens of a request that contains only these definitions or instructions.
    pub bound: u64,
}

/// Returns the name by which a model calls a tool: `rye/file-system/read` is `rye_file_system_read`.
pub fn tool_name(id: &ItemId) -> String {
    id.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Builds the palette: the primaries and, if `preload` is enabled, those tools of `reached` that fit into the token
/// limit of `preload`. `reached` holds the tools that grants allow. `place` returns the span of a grant.
pub fn build(
    primaries: &[(primary::Primary, Option<String>)],
    reached: &[(ReachedTool, SizedTool)],
    preload: PreloadSettings,
    place: &dyn Fn(&str) -> Option<Span>,
    diagnostics: &mut Diagnostics,
) -> Palette {
    let mut palette = Palette::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (primary, granted_by) in primaries {
        palette.grants.insert(primary.tool_name().to_owned(), granted_by.clone());
        palette.tools.extend(PRIMARIES.iter().find(|t| t.primary == to_plan_primary(*primary)).cloned());
    }
    for reserved in primary::Primary::ALL.iter().map(|p| p.tool_name()).chain([DIRECTIVE_RETURN_TOOL]) {
        names.insert(reserved.to_owned(), reserved.to_owned());
    }
    if preload.enabled {
        add_native_tools(&mut palette, &mut names, reached, preload.max_tokens, place, diagnostics);
    }
    palette
}

impl Palette {
    /// Offers skills through `rye_fetch` if a grant allows one of them. If there are no skills, and all grants to fetch
    /// are grants of skills, removes `rye_fetch`. Returns true if the thread may fetch a skill.
    pub(crate) fn offer_skills(&mut self, grants: &[Grant], skills: &[ItemId]) -> bool {
        let Some(at) = self.tools.iter().position(|tool| tool.primary == PalettePrimary::Fetch) else { return false };
        let for_skills = |grant: &&Grant| grant.pattern.starts_with("rye.fetch.skill");
        if skills.is_empty() {
            let fetches = |grant: &&Grant| possible_primaries(&grant.pattern).contains(&primary::Primary::Fetch);
            let mut fetching = grants.iter().filter(fetches).peekable();
            if fetching.peek().is_some() && fetching.all(|grant| for_skills(&grant)) {
                let removed = self.tools.remove(at);
                self.grants.remove(&*removed.name);
            }
            return false;
        }
        let granted = CapabilitySet::new(grants.iter().map(|grant| grant.pattern.clone()));
        let may_fetch = |id: &ItemId| {
            let capability = primary::format_capability(primary::Primary::Fetch, ItemType::Skill, Some(id));
            granted.first_match(&capability).is_some()
        };
        let offers = skills.iter().any(may_fetch);
        if let (true, Some(tool)) = (offers, self.tools.get_mut(at)) {
            *tool = primary_tool(primary::fetch_with_skills(), PalettePrimary::Fetch);
        }
        offers
    }

    /// Adds `rye_directive_return` at the end if outputs are declared. Returns true if the tool was added.
    pub(crate) fn add_return(&mut self, outputs: &IndexMap<String, InterfaceField>) -> bool {
        if !outputs.is_empty() {
            self.tools.push(primary_tool(primary::directive_return(outputs), PalettePrimary::Return));
        }
        !outputs.is_empty()
    }

    /// Counts the tokens of every definition as a request to this model contains it. These counts do not affect the
    /// palette's token budget, which always counts characters / 4 (`language.md`, Palette).
    pub(crate) fn count_tokens(&mut self, model: &PlannedModel) {
        for tool in &mut self.tools {
            tool.tokens = model.definition_size(tool).tokens;
        }
    }

    /// Returns the tokens of all tool definitions together.
    pub fn tokens(&self) -> u64 {
        self.tools.iter().fold(0, |sum, tool| sum.saturating_add(tool.tokens))
    }

    /// Returns the size of the tool definitions in a request to `model`. A model without native tool use gets
    /// instructions in place of the definitions; the result is then the size of the instructions. `size_of` returns the
    /// size of one definition.
    pub fn opening(&self, model: &PlannedModel, size_of: &dyn Fn(&PaletteTool) -> TextSize) -> OpeningSize {
        match model.tool_use {
            ToolUse::Native => {
                let sizes: Vec<TextSize> = self.tools.iter().map(size_of).collect();
                let tokens = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(size.tokens));
                let bounds = sizes.into_iter().map(|size| size.bound);
                OpeningSize { tokens, bound: model.bound_native_head("", bounds) }
            }
            ToolUse::TextParsed => {
                let instructions = instructions::instructions_text(model, &self.tools).unwrap_or_default();
                let tokens = model.counted_by.count(&instructions);
                OpeningSize { tokens, bound: model.bound_head(&instructions, &self.tools) }
            }
        }
    }
}

fn add_native_tools(
    palette: &mut Palette,
    names: &mut BTreeMap<String, String>,
    reached: &[(ReachedTool, SizedTool)],
    max_tokens: u64,
    place: &dyn Fn(&str) -> Option<Span>,
    diagnostics: &mut Diagnostics,
) {
    let mut left = max_tokens;
    for (reached, tool) in reached {
        let id = &reached.id;
        let name = tool_name(id);
        let SizedTool { tool, schema, tokens, bytes } = tool;
        let (tokens, bytes) = (*tokens, *bytes);
        let span = place(&reached.grant);
        let mut drop = |because: String| {
            palette.dropped.push(DroppedTool { item_id: id.clone(), tokens, bytes, because, refused: false });
        };
        if name.len() > MAX_TOOL_NAME_BYTES {
            drop(format!("its name has {} characters; providers accept at most {MAX_TOOL_NAME_BYTES}", name.len()));
            diagnostics.push(PaletteError::Name { name, item: id.to_string(), span });
            continue;
        }
        if let Some(first) = names.get(&name) {
            diagnostics.push(PaletteError::Collision { name, first: first.clone(), second: id.to_string(), span });
            continue;
        }
        names.insert(name.clone(), id.to_string());
        if tokens > left {
            drop(format!("{tokens} tokens do not fit: {left} of {max_tokens} remain"));
            continue;
        }
        left -= tokens;
        palette.grants.insert(name.clone(), Some(reached.grant.clone()));
        palette.tools.push(PaletteTool {
            name: name.into(),
            primary: PalettePrimary::Execute,
            item_id: Some(id.clone()),
            description: tool.spec.description.as_str().into(),
            schema: Arc::clone(schema),
            tokens,
            bytes,
            parallel: tool.spec.parallel,
            idempotent: tool.spec.idempotent.clone(),
        });
    }
}

/// Returns the primaries that the patterns could allow, each with the first pattern that could allow the primary. `of`
/// returns the primaries that one pattern could allow. If no permissions are declared (`patterns` is `None`), returns
/// all primaries without patterns.
pub(crate) fn granted_primaries<L: AsRef<[primary::Primary]>>(
    patterns: Option<&[String]>,
    of: impl Fn(&str) -> L,
) -> Vec<(primary::Primary, Option<String>)> {
    let Some(patterns) = patterns else {
        return primary::Primary::ALL.map(|p| (p, None)).to_vec();
    };
    let allowed: Vec<(&String, L)> = patterns.iter().map(|p| (p, of(p))).collect();
    let granted = |primary: primary::Primary| {
        let (pattern, _) = allowed.iter().find(|(_, all)| all.as_ref().contains(&primary))?;
        Some((primary, Some((*pattern).clone())))
    };
    primary::Primary::ALL.into_iter().filter_map(granted).collect()
}

static PRIMARIES: LazyLock<Vec<PaletteTool>> = LazyLock::new(|| {
    primary::Primary::ALL.into_iter().map(|p| primary_tool(p.definition(), to_plan_primary(p))).collect()
});

fn primary_tool(definition: PrimaryDefinition, primary: PalettePrimary) -> PaletteTool {
    let (tokens, bytes) = definition_size(&definition.description, &definition.schema);
    PaletteTool {
        name: definition.name.into(),
        primary,
        item_id: None,
        description: definition.description.into(),
        schema: Arc::new(definition.schema),
        tokens,
        bytes,
        parallel: primary == PalettePrimary::Fetch,
        idempotent: Idempotence::All(primary == PalettePrimary::Fetch),
    }
}

fn to_plan_primary(primary: primary::Primary) -> PalettePrimary {
    match primary {
        primary::Primary::Execute => PalettePrimary::Execute,
        primary::Primary::Fetch => PalettePrimary::Fetch,
        primary::Primary::Sign => PalettePrimary::Sign,
    }
}

/// Returns tokens (characters / 4) and bytes of a definition, independent of the model.
fn definition_size(description: &str, schema: &Value) -> (u64, u64) {
    let text = format!("{schema}{description}");
    (Tokenizer::Characters.count(&text), u64::try_from(text.len()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
