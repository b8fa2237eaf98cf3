//! What every directive of one compilation shares: the provider catalog, the risk table, the settings that are frozen
//! into plans, the list of tools. Each is read when it is first needed, and once.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use rye_grammar::ItemId;
use rye_grammar::data::{Kind, Node};
use serde_json::Value;

use crate::diagnostics::{ConfigError, Diagnostics};
use crate::item::Items;
use crate::model::{self, Catalog, ModelSettings};
use crate::palette::Preload;
use crate::semantics::risk::RiskTable;
use crate::world::ItemKind;

/// The settings a run reads, by the name they have in `Plan::settings`.
const FROZEN: [&str; 4] = ["resilience", "coordination", "error_classification", "capability_risk"];
const PROVIDERS: &str = "agent/providers/";

pub struct Shared<'i, 'w> {
    pub items: &'i Items<'w>,
    catalog: OnceCell<Catalog<'i>>,
    risk: OnceCell<RiskTable>,
    preload: OnceCell<Preload>,
    frozen: OnceCell<BTreeMap<String, Value>>,
    tools: OnceCell<Vec<ItemId>>,
    found: &'i RefCell<Diagnostics>,
}

impl<'i, 'w> Shared<'i, 'w> {
    /// `found` takes what is wrong with the settings themselves, each said once.
    pub fn new(items: &'i Items<'w>, found: &'i RefCell<Diagnostics>) -> Self {
        Self {
            items,
            catalog: OnceCell::new(),
            risk: OnceCell::new(),
            preload: OnceCell::new(),
            frozen: OnceCell::new(),
            tools: OnceCell::new(),
            found,
        }
    }

    /// The providers and their models.
    pub fn catalog(&self) -> &Catalog<'i> {
        self.catalog.get_or_init(|| {
            let (items, found) = (self.items, self.found);
            let settings = items
                .config_named("agent/models")
                .map_or_else(ModelSettings::default, |node| model::settings(&node, &mut found.borrow_mut()));
            let names = items.list(ItemKind::Config);
            let names = names.iter().filter_map(|e| e.id.as_str().strip_prefix(PROVIDERS));
            let names = names.filter(|name| !name.contains('/')).map(str::to_owned).collect();
            let load = move |name: &str| {
                let node = items.config_named(&format!("{PROVIDERS}{name}"))?;
                model::provider(name, &node, &items.sources(), &mut found.borrow_mut())
            };
            Catalog::new(settings, names, Box::new(load))
        })
    }

    pub fn risk(&self) -> &RiskTable {
        self.risk.get_or_init(|| {
            let Some(node) = self.items.config_named("agent/capability_risk") else { return RiskTable::default() };
            RiskTable::from_value(&node.to_value()).unwrap_or_else(|fault| {
                self.found.borrow_mut().push(ConfigError::Invalid {
                    file: "agent/capability_risk".to_owned(),
                    key: fault.at.clone(),
                    found: "used".to_owned(),
                    expected: fault.message.clone(),
                    span: Some(at(&node, &fault.at).span),
                });
                RiskTable::default()
            })
        })
    }

    pub fn preload(&self) -> Preload {
        *self.preload.get_or_init(|| {
            let node = self.items.config_named("agent/resilience");
            let section = node.as_ref().and_then(|n| n.get("tool_preload"));
            section.map_or_else(Preload::default, |section| preload(section, &mut self.found.borrow_mut()))
        })
    }

    /// The merged settings that a run reads.
    pub fn frozen(&self) -> &BTreeMap<String, Value> {
        self.frozen.get_or_init(|| {
            let value = |name: &&str| {
                let node = self.items.config_named(&format!("agent/{name}"))?;
                Some(((*name).to_owned(), node.to_value()))
            };
            FROZEN.iter().filter_map(value).collect()
        })
    }

    /// Every tool id, sorted, each once.
    pub fn tools(&self) -> &[ItemId] {
        self.tools.get_or_init(|| {
            let mut ids: Vec<ItemId> = self.items.list(ItemKind::Tool).iter().map(|e| e.id.clone()).collect();
            ids.dedup();
            ids
        })
    }
}

/// The node at a dotted path, as far as it goes.
fn at<'n>(node: &'n Node, path: &str) -> &'n Node {
    let mut here = node;
    for segment in path.split('.') {
        let next = segment.parse().ok().and_then(|i: usize| here.items().get(i)).or_else(|| here.get(segment));
        let Some(next) = next else { break };
        here = next;
    }
    here
}

fn preload(section: &Node, found: &mut Diagnostics) -> Preload {
    let mut preload = Preload::default();
    for entry in section.entries() {
        let expected = match (entry.key.node.as_str(), &entry.value.kind) {
            ("enabled", Kind::Bool(enabled)) => {
                preload.enabled = *enabled;
                continue;
            }
            ("max_tokens", Kind::Number(number)) if number.as_u64().is_some() => {
                preload.max_tokens = number.as_u64().unwrap_or_default();
                continue;
            }
            ("enabled", _) => "`true` or `false`",
            ("max_tokens", _) => "a whole number of tokens",
            _ => continue,
        };
        found.push(ConfigError::Invalid {
            file: "agent/resilience".to_owned(),
            key: format!("tool_preload.{}", entry.key.node),
            found: entry.value.describe().to_owned(),
            expected: expected.to_owned(),
            span: Some(entry.value.span),
        });
    }
    preload
}
