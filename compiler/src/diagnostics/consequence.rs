//! Consequences of a misspelled word: a required part that is missing because its key is misspelled, an input that is
//! unused because its placeholder is misspelled, a call that is not granted because its pattern is misspelled. Only the
//! mistake itself is reported.

#![expect(clippy::wildcard_enum_match_arm, reason = "few diagnostics are a consequence of others")]

use std::collections::BTreeSet;

use rye_grammar::{SourceId, Sources, Span, SyntaxKind};

use super::{
    CapabilityError, ConfigError, ContextError, Diagnostic, HookError, InterfaceError, ItemError, LimitError,
    ModelError, SkillError, SpawnError, faulty_value, misplaced_key, unread_part,
};
use crate::semantics::glob;
use crate::semantics::needs;

/// Removes diagnostics that disappear once another diagnostic of the same file is corrected.
pub(super) fn drop_consequences(all: &mut Vec<Diagnostic>, sources: &Sources) {
    let mut dropped = name_implausible_prices(all);
    dropped.extend(missing_beside_misspelled(all));
    dropped.extend(hidden_by_patterns(all));
    dropped.extend(repeated_or_unusable_settings(all));
    dropped.extend(conditions_of_unknown_values(all));
    dropped.extend(effects_of_unread_hooks(all));
    dropped.extend(grants_of_unread_tools(all));
    dropped.extend(inputs_of_foreign_placeholders(all));
    dropped.extend(acknowledgements_of_blocked_grants(all));
    dropped.extend(placeholders_of_invalid_names(all));
    dropped.extend(repeated_costs_of_a_turn(all));
    dropped.extend(effects_of_invalid_hosts(all));
    dropped.extend(turns_beside_an_unaffordable_turn(all));
    dropped.extend(actions_of_hooks_that_never_fire(all));
    dropped.extend(defaults_of_unseparated_choices(all));
    dropped.extend(models_of_broken_providers(all, sources));
    dropped.extend(parts_with_unknown_keys(all));
    dropped.extend(misplaced_key::consequences(all));
    dropped.extend(faulty_value::consequences(all));
    dropped.extend(unread_part::consequences(all));
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        !dropped.contains(&(index - 1))
    });
}

/// Returns the file and the offset of a diagnostic's first label; `None` if the diagnostic has no label.
fn place(one: &Diagnostic) -> Option<(SourceId, u32)> {
    one.labels().first().map(|label| (label.span.source, label.span.start))
}

/// Returns the indexes of the diagnostics that report a word as missing or unused although the same file contains a
/// misspelling of the word. Each misspelling explains one such diagnostic: the nearest one in the file.
fn missing_beside_misspelled(all: &[Diagnostic]) -> BTreeSet<usize> {
    let mut dropped = BTreeSet::new();
    let mut absent: Option<Vec<(usize, String, SourceId, u32)>> = None;
    for one in all {
        let Some((word, (source, at))) = intended_word(one).zip(place(one)) else { continue };
        let absent = absent.get_or_insert_with(|| {
            let named = |(index, one): (usize, &Diagnostic)| {
                let (source, at) = place(one)?;
                Some((index, absent_word(one)?, source, at))
            };
            all.iter().enumerate().filter_map(named).collect()
        });
        let of_word = absent
            .iter()
            .filter(|(index, other, file, _)| *other == word && *file == source && !dropped.contains(index));
        dropped.extend(of_word.min_by_key(|(.., other)| other.abs_diff(at)).map(|(index, ..)| *index));
    }
    dropped
}

/// Returns the correct word for the misspelled word that a diagnostic reports; `None` if the diagnostic reports no
/// misspelling or suggests no word.
fn intended_word(one: &Diagnostic) -> Option<String> {
    let of_help = |help: &str| help.strip_prefix("did you mean `")?.split('`').next().map(str::to_owned);
    match one {
        // If `suggestion` is `None`, the help can still name the right word, as for a word of another format.
        Diagnostic::Item(ItemError::UnknownKey { suggestion, .. }) => {
            suggestion.clone().or_else(|| of_help(&one.help()?))
        }
        Diagnostic::Interface(
            InterfaceError::UnknownInput { suggestion, .. } | InterfaceError::UnknownParameter { suggestion, .. },
        ) => suggestion.clone(),
        Diagnostic::Item(ItemError::ToolKey { help, .. }) => of_help(help.as_deref()?),
        // The name of the constant contains the key: `__tool_description__` contains `description`.
        Diagnostic::Item(ItemError::NearConstant { suggestion, is_needed: true, .. }) => {
            Some(suggestion.trim_matches('_').trim_start_matches("tool_").to_owned())
        }
        _ => None,
    }
}

/// Returns the word that a diagnostic reports as missing or unused; `None` if the diagnostic reports something else.
fn absent_word(one: &Diagnostic) -> Option<String> {
    match one {
        Diagnostic::Item(ItemError::Missing { what: text, .. } | ItemError::ToolMissing { message: text, .. }) => {
            text.split('`').nth(1).map(str::to_owned)
        }
        Diagnostic::Config(ConfigError::Invalid { key, found, .. }) if found == "missing" => {
            key.rsplit('.').next().map(str::to_owned)
        }
        Diagnostic::Skill(SkillError::NoDescription { .. }) => Some("description".to_owned()),
        Diagnostic::Interface(
            InterfaceError::MissingInput { name, .. }
            | InterfaceError::MissingParameter { name, .. }
            | InterfaceError::UnusedInput { name, .. },
        ) => Some(name.clone()),
        _ => None,
    }
}

/// Returns the indexes of diagnostics about refused calls that may be consequences of a faulty grant in the same file:
/// a pattern of the grants is invalid, or is misspelled and was meant to allow the call.
fn hidden_by_patterns(all: &[Diagnostic]) -> BTreeSet<usize> {
    let invalid: BTreeSet<SourceId> = all
        .iter()
        .filter(|one| matches!(one, Diagnostic::Syntax(error) if error.kind == SyntaxKind::Capability))
        .filter_map(|one| Some(place(one)?.0))
        .collect();
    let misspelled: Vec<(SourceId, &str)> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Capability(CapabilityError::MatchesNothing { suggestion, span, .. }) => {
                Some((span.source, suggestion.as_deref()?))
            }
            _ => None,
        })
        .collect();
    if invalid.is_empty() && misspelled.is_empty() {
        return BTreeSet::new();
    }
    let is_hidden = |one: &Diagnostic| {
        let (capability, granted) = match one {
            Diagnostic::Capability(CapabilityError::UngrantedCall { capability, granted, .. })
            | Diagnostic::Spawn(SpawnError::ExceedsParent { capability, granted, .. }) => (capability, granted.source),
            _ => return false,
        };
        let allows = |(source, meant): &(SourceId, &str)| *source == granted && glob::matches(meant, capability);
        invalid.contains(&granted) || misspelled.iter().any(allows)
    };
    all.iter().enumerate().filter(|(_, one)| is_hidden(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of redundant diagnostics about settings. A diagnostic is redundant if it reports the same
/// missing setting a second time, if it reports a tier whose model has a faulty entry, or if it follows from an
/// implausible context window.
fn repeated_or_unusable_settings(all: &[Diagnostic]) -> BTreeSet<usize> {
    let mut missing = BTreeSet::new();
    let mut dropped = BTreeSet::new();
    let invalid = |one: &Diagnostic| match one {
        Diagnostic::Config(ConfigError::Invalid { file, key, found, .. }) => {
            Some((file.clone(), key.clone(), found.clone()))
        }
        _ => None,
    };
    let faults: Vec<_> = all.iter().enumerate().filter_map(|(index, one)| Some((index, invalid(one)?))).collect();
    let windows: BTreeSet<&str> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Config(ConfigError::Implausible { key, .. }) => {
                key.strip_prefix("models.")?.strip_suffix(".context_window")
            }
            _ => None,
        })
        .collect();
    for (index, (file, key, found)) in &faults {
        let is_repeated = found == "missing" && !missing.insert((file, key));
        let model = found.trim_matches('`');
        let names_broken_model = key.starts_with("tiers.")
            && faults.iter().any(|(_, (other, broken, _))| {
                other == file && broken.strip_prefix("models.").is_some_and(|rest| is_key_of(rest, model))
            });
        let exceeds_odd_window = key
            .strip_prefix("models.")
            .and_then(|rest| rest.strip_suffix(".max_output"))
            .is_some_and(|model| windows.contains(model));
        if is_repeated || names_broken_model || exceeds_odd_window {
            dropped.insert(*index);
        }
    }
    // An implausible context window also causes `ContextError::Ceiling`, so only the window is reported.
    let is_ceiling = |one: &Diagnostic| matches!(one, Diagnostic::Context(ContextError::Ceiling { .. }));
    if !windows.is_empty() {
        dropped.extend(all.iter().enumerate().filter(|(_, one)| is_ceiling(one)).map(|(index, _)| index));
    }
    dropped
}

/// Returns true if `key` is a setting of `model`: `small.context_window` is a setting of `small`.
fn is_key_of(key: &str, model: &str) -> bool {
    key.strip_prefix(model).is_some_and(|rest| rest.starts_with('.'))
}

/// Returns the indexes of diagnostics about hooks that never fire, if the cause is reported too: the condition compares
/// with a value that does not exist.
fn conditions_of_unknown_values(all: &[Diagnostic]) -> BTreeSet<usize> {
    let values: Vec<Span> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Hook(
                HookError::UnknownCall { span, .. }
                | HookError::UnknownValue { span, .. }
                | HookError::Wildcard { span, .. }
                | HookError::DelimitedPattern { span, .. }
                | HookError::EscapedPattern { span, .. }
                | HookError::WildcardPattern { span, .. },
            ) => Some(*span),
            _ => None,
        })
        .collect();
    let contains = |outer: &Span, inner: &Span| {
        outer.source == inner.source && outer.start <= inner.start && inner.end <= outer.end
    };
    let is_explained = |one: &Diagnostic| match one {
        Diagnostic::Hook(
            HookError::Never { span, .. } | HookError::OnlyLibrary { span, .. } | HookError::Always { span, .. },
        ) => values.iter().any(|value| contains(span, value)),
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_explained(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics about grants that match nothing because the file of the tool is not read. An
/// example is a grant of the tool `t`, of which only the unread file `.ai/tools/t.json` exists.
fn grants_of_unread_tools(all: &[Diagnostic]) -> BTreeSet<usize> {
    let unread: BTreeSet<String> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Item(
                ItemError::UnrecognizedProgram { declaration: path, .. }
                | ItemError::Unrecognized { suggestion: Some(path), .. },
            ) => path.strip_prefix(".ai/tools/")?.rsplit_once('.').map(|(id, _)| id.replace('/', ".")),
            _ => None,
        })
        .collect();
    let is_hidden = |one: &Diagnostic| match one {
        Diagnostic::Capability(CapabilityError::MatchesNothing { pattern, .. }) => {
            pattern.strip_prefix("rye.execute.tool.").is_some_and(|id| unread.contains(id))
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_hidden(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics that report an acknowledgement without effect in a file with a blocked grant.
/// A correction of the grant may change its risk tier, so that the acknowledgement has an effect.
fn acknowledgements_of_blocked_grants(all: &[Diagnostic]) -> BTreeSet<usize> {
    let blocked: BTreeSet<SourceId> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Capability(CapabilityError::Blocked { span, .. }) => Some(span.source),
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Capability(CapabilityError::AcknowledgesNothing { span, .. }) => blocked.contains(&span.source),
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of diagnostics that only follow from an invalid host in a grant, such as `true`. A grant without
/// a valid host is also reported as a grant of the whole network, or as a grant without effect. Considers only hosts
/// for which no correction can be suggested, and only diagnostics in the file of the host.
fn effects_of_invalid_hosts(all: &[Diagnostic]) -> BTreeSet<usize> {
    let invalid: BTreeSet<SourceId> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Item(ItemError::InvalidValue { what, found, span, .. })
                if what == "`net` of `<tool>`"
                    && needs::suggest_host(found.trim_matches('`')).is_some_and(|meant| meant.is_empty()) =>
            {
                Some(span.source)
            }
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Capability(CapabilityError::WholeNetwork { .. } | CapabilityError::DeadGrant { .. }) => {
            place(one).is_some_and(|(source, _)| invalid.contains(&source))
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics that follow from a `spend` limit that does not pay for one turn. These are
/// reports of a `turns` limit that is never reached. If the `spend` limit is a maximum (`limits.max`), these are also
/// reports of `spend` limits above the maximum.
fn turns_beside_an_unaffordable_turn(all: &[Diagnostic]) -> BTreeSet<usize> {
    let unaffordable: BTreeSet<SourceId> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Limit(LimitError::CannotAffordOneTurn { span: Some(span), .. }) => Some(span.source),
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Limit(LimitError::NeverBinds { name, span, .. }) => {
            name == "turns" && unaffordable.contains(&span.source)
        }
        // The report about the maximum itself is enough.
        Diagnostic::Limit(LimitError::AboveCeiling { name, ceiling, .. }) => {
            name == "spend" && unaffordable.contains(&ceiling.source)
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of redundant diagnostics: they report that the action of a hook has no effect, or that a
/// continuation lacks its knowledge, but another diagnostic reports that the hook never fires.
fn actions_of_hooks_that_never_fire(all: &[Diagnostic]) -> BTreeSet<usize> {
    let never: BTreeSet<(SourceId, &str)> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Hook(HookError::Never { id, span, .. }) => Some((span.source, id.as_str())),
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Hook(HookError::NoEffect { id, span, .. } | HookError::RaisesNothing { id, span, .. }) => {
            never.contains(&(span.source, id.as_str()))
        }
        Diagnostic::Context(ContextError::NotRestored { hook, span, .. }) => {
            never.contains(&(span.source, hook.as_str()))
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics that report an invalid default, if the choices of the same input are also
/// reported, for example because the choices lack separators. Both reports have the same cause.
fn defaults_of_unseparated_choices(all: &[Diagnostic]) -> BTreeSet<usize> {
    let fields: Vec<(SourceId, &str)> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Interface(InterfaceError::Choices { of, span, .. }) => {
                Some((span.source, of.split('`').nth(1)?))
            }
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Interface(InterfaceError::Type { what, span: Some(span), .. }) => {
            let name = what.strip_prefix("the default of `").and_then(|rest| rest.strip_suffix('`'));
            name.is_some_and(|name| fields.contains(&(span.source, name)))
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics that report a placeholder with an invalid input name, if an `<input>` with
/// this name is reported in the same file. Both reports have the same cause.
fn placeholders_of_invalid_names(all: &[Diagnostic]) -> BTreeSet<usize> {
    let names: Vec<(SourceId, String)> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Item(ItemError::InvalidValue { what, found, span, .. }) if what == "the name in `<input>`" => {
                Some((span.source, format!("{{input:{}", found.trim_matches('`'))))
            }
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Syntax(error) if error.kind == SyntaxKind::Template => {
            let message = one.message();
            place(one)
                .is_some_and(|(source, _)| names.iter().any(|(file, text)| *file == source && message.contains(text)))
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Adds an implausible price of a model to the errors of limits that do not pay for one turn of this model. Returns the
/// indexes of the warnings about these prices: the error names the price and, unlike the warning, states that no run
/// starts.
fn name_implausible_prices(all: &mut [Diagnostic]) -> BTreeSet<usize> {
    let named = |(index, one): (usize, &Diagnostic)| match one {
        Diagnostic::Config(ConfigError::Implausible { key, why, span, .. }) => {
            let (model, _) = key.strip_prefix("models.")?.rsplit_once(".prices.")?;
            Some((index, model.to_owned(), why.clone(), *span))
        }
        _ => None,
    };
    let prices: Vec<_> = all.iter().enumerate().filter_map(named).collect();
    let mut dropped = BTreeSet::new();
    for one in all {
        let Diagnostic::Limit(LimitError::CannotAffordOneTurn { model, price, .. }) = one else { continue };
        for (index, _, why, span) in prices.iter().filter(|(_, of, ..)| of == model) {
            dropped.insert(*index);
            price.get_or_insert_with(|| Box::new((why.clone(), *span)));
        }
    }
    dropped
}

/// Returns the indexes of repeated reports of two kinds: the spend limit does not pay for one turn, or the prompt is
/// larger than the token limit. A directive can have such a report for each of its routes. The first report at a place
/// is kept, so its index is not returned.
fn repeated_costs_of_a_turn(all: &[Diagnostic]) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let is_repeated = |one: &Diagnostic| match one {
        Diagnostic::Limit(
            LimitError::CannotAffordOneTurn { price: Some(_), .. }
            | LimitError::CannotAffordOneTurn { span: Some(_), .. }
            | LimitError::PromptAboveTokens { span: Some(_), .. },
        ) => !seen.insert(place(one)),
        _ => false,
    };
    let mut is_repeated = is_repeated;
    all.iter().enumerate().filter(|(_, one)| is_repeated(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the reports of unused inputs in files where `$ARGUMENTS` is the only text that is reported as
/// similar to a placeholder. The author probably means `$ARGUMENTS` to stand for the inputs, so the report about
/// `$ARGUMENTS` is enough.
fn inputs_of_foreign_placeholders(all: &[Diagnostic]) -> BTreeSet<usize> {
    let lookalikes = || {
        all.iter().filter_map(|one| match one {
            Diagnostic::Interface(InterfaceError::Lookalike { text, span, .. }) => Some((text.as_str(), span.source)),
            _ => None,
        })
    };
    let mut files: BTreeSet<SourceId> = lookalikes().map(|(_, source)| source).collect();
    for (_, source) in lookalikes().filter(|(text, _)| *text != "$ARGUMENTS") {
        files.remove(&source);
    }
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Interface(InterfaceError::UnusedInput { span, .. }) => files.contains(&span.source),
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of diagnostics that only follow from a misspelled name in the hooks. If the name of a hook file
/// or an item id is misspelled, knowledge seems to be in no prompt, because the hook that injects it is not read. If a
/// key of a hook is misspelled, its condition may be missing, so that the hook seems to block every use of a grant.
fn effects_of_unread_hooks(all: &[Diagnostic]) -> BTreeSet<usize> {
    const HOOK_FILES: [&str; 2] = ["hooks.yaml", "hook_conditions.yaml"];
    let is_unread_file = |one: &Diagnostic| match one {
        Diagnostic::Config(ConfigError::UnknownFile { suggestion: Some(meant), .. })
        | Diagnostic::Item(ItemError::Unrecognized { suggestion: Some(meant), .. }) => {
            HOOK_FILES.iter().any(|name| meant.rsplit('/').next() == Some(name))
        }
        _ => false,
    };
    let has_unread_file = all.iter().any(is_unread_file);
    let misspelled_ids: BTreeSet<String> = all
        .iter()
        .filter(|one| matches!(one, Diagnostic::Syntax(error) if error.kind == SyntaxKind::Reference))
        .filter_map(|one| one.help()?.rsplit('`').nth(1).map(str::to_owned))
        .collect();
    let with_unknown_keys: BTreeSet<SourceId> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Item(ItemError::UnknownKey { of, span, .. }) if of == "a hook" => Some(span.source),
            Diagnostic::Item(ItemError::InvalidValue { what, span, .. })
                if ["`layer`", "`enabled`", "`on_failure`", "`position`"].contains(&what.as_str()) =>
            {
                Some(span.source)
            }
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Context(ContextError::Unreached { id, .. }) => has_unread_file || misspelled_ids.contains(id),
        Diagnostic::Capability(CapabilityError::BlockedGrant { hook_span, .. }) => {
            with_unknown_keys.contains(&hook_span.source)
        }
        // The misspelled key may be the condition, which limits the directives of the hook.
        Diagnostic::Context(ContextError::NotRestored { span, .. }) => with_unknown_keys.contains(&span.source),
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics about models that follow from a fault in the file of a provider. A provider
/// whose file has a fault lacks the tiers of this file, or all of its models.
fn models_of_broken_providers(all: &[Diagnostic], sources: &Sources) -> BTreeSet<usize> {
    let broken: Vec<(&str, Option<&str>)> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Config(ConfigError::Invalid { file, span, .. }) => {
                let text = span.and_then(|span| sources.get(span.source)).map(|source| &*source.text);
                Some((file.strip_prefix("agent/providers/")?, text))
            }
            _ => None,
        })
        .collect();
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Model(
            ModelError::OtherProvider { default: provider, .. } | ModelError::NoDefault { provider, .. },
        ) => broken.iter().any(|(id, _)| id == provider),
        // The name may be a model or a tier of the broken file. A name that the file does not contain is unknown in any
        // case.
        Diagnostic::Model(ModelError::Unknown { requested, provider, span: Some(_), .. }) => {
            broken.iter().any(|(id, text)| {
                let is_named = provider.as_ref().is_none_or(|provider| provider == id);
                is_named && text.is_none_or(|text| text.contains(requested.as_str()))
            })
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}

/// Returns the indexes of the diagnostics that report the form or the effect of a part of a file, such as an assertion
/// or the action of a hook, if the part contains an unknown key. The unknown key is probably meant as the key that the
/// part lacks.
fn parts_with_unknown_keys(all: &[Diagnostic]) -> BTreeSet<usize> {
    let keys: Vec<Span> = all
        .iter()
        .filter_map(|one| match one {
            Diagnostic::Item(ItemError::UnknownKey { what: "key", span, .. }) => Some(*span),
            _ => None,
        })
        .collect();
    let contains = |outer: &Span| {
        keys.iter().any(|key| key.source == outer.source && outer.start <= key.start && key.end <= outer.end)
    };
    let is_effect = |one: &Diagnostic| match one {
        Diagnostic::Hook(HookError::NoEffect { span, .. }) => contains(span),
        Diagnostic::Config(ConfigError::Invalid { found, span: Some(span), .. }) => {
            found == "a mapping" && contains(span)
        }
        _ => false,
    };
    all.iter().enumerate().filter(|(_, one)| is_effect(one)).map(|(index, _)| index).collect()
}
