//! A knowledge item: its metadata and the body to inject (`language.md`, Knowledge).

use rye_grammar::Spanned;
use rye_grammar::data::{Kind, Node};
use rye_grammar::knowledge::KnowledgeTree;
use serde_json::{Map, Value};

use super::{FileRef, data};
use crate::diagnostics::{Diagnostics, ItemError, closest};
use crate::plan::{TextSize, TextSizes, Tokenizer};

/// Keys of knowledge metadata. The key `id` occurs in older files, which declare their own id.
pub(crate) const KEYS: [&str; 13] = [
    "id",
    "name",
    "title",
    "description",
    "category",
    "tags",
    "entry_type",
    "version",
    "author",
    "created_at",
    "references",
    "extends",
    "used_by",
];

#[derive(Debug, Clone)]
pub struct Knowledge {
    pub file: FileRef,
    /// The declared `name`: the tag that wraps the body. If `None`, the tag is the last segment of the id.
    pub name: Option<Spanned<String>>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub category: Option<String>,
    pub tags: Vec<String>,
    /// All declared metadata, including `extends` and `used_by`.
    pub metadata: Map<String, Value>,
    /// The ids in `id`, `category`, `references`, `extends` and `used_by`, each with its key.
    pub names: Vec<(&'static str, Spanned<String>)>,
    /// The content without signature and metadata.
    pub body: Spanned<String>,
    pub sizes: TextSizes,
}

impl Knowledge {
    /// Returns the size of the body in tokens of the tokenizer `by`.
    pub fn size(&self, by: Tokenizer) -> TextSize {
        self.sizes.of(by, &self.body.node)
    }

    /// Returns the name of the wrapping tag: the declared name, else the id's last segment.
    pub fn tag(&self) -> &str {
        self.name.as_ref().map_or(self.file.id.name(), |n| &n.node)
    }
}

/// Converts the tree of a knowledge file. A pure YAML file is metadata and body at once, so it may have any key.
pub fn read(file: FileRef, tree: KnowledgeTree, found: &mut Diagnostics) -> Knowledge {
    let metadata = tree.metadata;
    let entries = metadata.as_ref().map(Node::entries).unwrap_or_default();
    if file.path.ends_with(".md") {
        for entry in entries.iter().filter(|entry| !KEYS.contains(&entry.key.node.as_str())) {
            let (key, span) = (entry.key.node.clone(), entry.key.span);
            // Authors often add keys of their own, so only a key that is at most two edits from a known key counts as
            // misspelled.
            let suggestion = closest(&key, KEYS).filter(|near| strsim::osa_distance(near, &key) <= 2);
            found.push(ItemError::UnreadMetadata { key, suggestion, span });
        }
    }
    let get = |key: &str| metadata.as_ref().and_then(|m| m.get(key)).filter(|n| !matches!(n.kind, Kind::Null));
    let mut text = |key: &str| get(key).and_then(|n| data::read_string(found, key, n));
    let name = text("name");
    let title = text("title").map(|t| t.node);
    let description = text("description").map(|t| t.node);
    let category = text("category").map(|t| t.node);
    let name = name.filter(|n| {
        let tag = is_tag_name(&n.node);
        if !tag {
            let node = Node::new(Kind::String(n.node.clone()), n.span);
            data::report_invalid(
                found,
                "name",
                &node,
                "a name that can be a tag: letters, digits, `_`, `-` and `.`, starting with a letter",
            );
        }
        tag
    });
    let tags = match get("tags").map(|n| &n.kind) {
        Some(Kind::List(items)) => items.iter().filter_map(|i| i.as_str().map(str::to_owned)).collect(),
        Some(Kind::String(one)) => one.split(',').map(|t| t.trim().to_owned()).collect(),
        Some(Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Map(_)) | None => Vec::new(),
    };
    let names = if file.path.ends_with(".md") { referenced_ids(&get) } else { Vec::new() };
    let metadata = match metadata.as_ref().map(Node::to_value) {
        Some(Value::Object(map)) => map,
        Some(_) | None => Map::new(),
    };
    Knowledge {
        file,
        name,
        title,
        description,
        category,
        tags,
        metadata,
        names,
        body: tree.body,
        sizes: TextSizes::default(),
    }
}

/// Returns the texts in the metadata keys that identify the file itself (`id`, `category`) or name other items, each
/// with its key. A value is a string or a list of strings; other values are ignored.
fn referenced_ids<'n>(get: &dyn Fn(&str) -> Option<&'n Node>) -> Vec<(&'static str, Spanned<String>)> {
    let mut all = Vec::new();
    for key in ["id", "category", "references", "extends", "used_by"] {
        let Some(node) = get(key) else { continue };
        let lone = std::iter::once(node).filter(|node| node.as_str().is_some());
        for one in lone.chain(node.items()) {
            all.extend(one.as_str().map(|text| (key, Spanned::new(text.to_owned(), one.span))));
        }
    }
    all
}

/// Returns true if a text can be the name of an XML tag: ASCII letters, digits, `_`, `-` and `.`, with a letter or `_`
/// first.
fn is_tag_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}
