//! The origin of a part of a plan: the declaration that it comes from, and the source line.

use std::fmt;

use rye_grammar::ItemId;

use super::SourcePlace;
use crate::hook::HookSource;
use crate::semantics::capability::Primary;
use crate::world::Space;

/// The origin of a part of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The source line; `None` for built-in parts and command line options.
    pub place: Option<SourcePlace>,
    pub cause: OriginCause,
}

/// The kind of declaration that a part of a plan comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginKind {
    /// A directive of the extends chain.
    Directive(ItemId),
    Hook(String),
    /// A settings file: `agent/resilience`.
    Config(ItemId),
    /// A built-in default.
    BuiltIn,
}

/// The cause of a part of a plan. Its text is what `plan` and `why` print: "declared by `project/deploy/base`".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OriginCause {
    /// A declaration in a directive of the chain, a hook or the settings, or a default that is built into the program.
    Declared(OriginKind),
    /// An option of the command, or an argument of the call.
    GivenWithCall,
    /// A limit that is lowered to the amount that remains to the spawn parent.
    ParentLimit,
    /// A grant of the spawning thread.
    InheritedGrant,
    /// A grant of the plan, by its pattern.
    Grant(String),
    /// A primary that is offered because no directive of the chain declares permissions.
    NoPermissions,
    /// The tool `rye_directive_return`, which is offered because the directive declares outputs.
    OutputsDeclared,
    /// The tool instructions of a model without native tool calls.
    TextToolCalls { model: String },
    /// The text that a tool adds to the system prompt: its one-line snippet and its guidelines.
    ToolGuidance { tool: ItemId, tokens: u64 },
    /// A context file (`AGENTS.md` or `CLAUDE.md`).
    ContextFile,
    /// The list of the skills that a chat can read.
    SkillList { count: usize },
    /// The text of the directive itself.
    Body,
    /// A directive of the extends chain: its position in the chain, counted from 1, the length of the chain (`count`),
    /// and the directive's space.
    ChainLink { position: usize, count: usize, space: Space },
    /// The extends parent that a directive declares.
    ExtendsParent { parent: ItemId, child: ItemId },
    /// The extends parent that a routing hook sets.
    RoutedParent { parent: ItemId, hook: String },
    /// The kind of source that declares a hook.
    HookSource(HookSource),
    /// The default model of `agent/models`, used because the directive requests none.
    DefaultModel,
    /// A knowledge item that the prompt contains already, and that the hook `hook` would inject a second time.
    RepeatedBy { hook: String },
    /// Permissions that allow no call of this primary, so that its protocol item is left out.
    Ungranted { primary: Primary },
}

impl fmt::Display for OriginCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared(OriginKind::Directive(id)) => write!(f, "declared by `{id}`"),
            Self::Declared(OriginKind::Hook(id)) => write!(f, "added by the hook `{id}`"),
            Self::Declared(OriginKind::Config(id)) => write!(f, "set in `{id}`"),
            Self::Declared(OriginKind::BuiltIn) => f.write_str("built in"),
            Self::GivenWithCall => f.write_str("set by the caller"),
            Self::ParentLimit => f.write_str("bounded by the parent thread"),
            Self::InheritedGrant => f.write_str("inherited at spawn"),
            Self::Grant(pattern) => write!(f, "granted by `{pattern}`"),
            Self::NoPermissions => {
                f.write_str("the chain declares no permissions: each call is checked when it is made")
            }
            Self::OutputsDeclared => f.write_str("outputs are declared"),
            Self::TextToolCalls { model } => write!(f, "the model `{model}` has `tool_use: text_parsed`"),
            Self::ToolGuidance { tool, tokens } => {
                write!(f, "the snippet and guidelines of `{tool}`, {tokens} tokens")
            }
            Self::ContextFile => f.write_str("a context file of chats"),
            Self::SkillList { count: 1 } => f.write_str("the list of 1 skill"),
            Self::SkillList { count } => write!(f, "the list of {count} skills"),
            Self::Body => f.write_str("the directive's own body"),
            Self::ChainLink { position, count, space } => {
                write!(f, "directive {position} of {count} of the extends chain, from the {} space", space.as_str())
            }
            Self::ExtendsParent { parent, child } => write!(f, "`{parent}`, declared by `{child}`"),
            Self::RoutedParent { parent, hook } => write!(f, "`{parent}`, set by the hook `{hook}`"),
            Self::HookSource(HookSource::User) => f.write_str("a hook of the user space"),
            Self::HookSource(HookSource::Directive { id }) => write!(f, "a hook of `{id}`"),
            Self::HookSource(HookSource::Builtin) => f.write_str("a hook of the standard library"),
            Self::HookSource(HookSource::Project) => f.write_str("a hook of the project"),
            Self::HookSource(HookSource::Infrastructure) => f.write_str("an infrastructure hook, which always runs"),
            Self::DefaultModel => f.write_str("the default of `agent/models`"),
            Self::Ungranted { primary } => write!(f, "no grant allows `{primary}`"),
            Self::RepeatedBy { hook } => write!(f, "added again by `{hook}`"),
        }
    }
}
