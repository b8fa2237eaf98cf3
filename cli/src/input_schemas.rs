//! Writes JSON Schemas of the files that people edit, such as tools and settings. A comment in a new YAML file names
//! its schema, so that editors find the schema.

use std::path::Path;

use rye_compiler::input_schema::{schema_name_of_path, schema_of_path};
use rye_engine::rooted_dir::write_user_file;
use serde_json::Value;

use crate::CommandError;
use crate::file_set::FileSet;

/// Folder below the project to which the schemas of input files are written. Comments in new files refer to these
/// schemas.
const SCHEMA_FOLDER: &str = ".ai/state/schemas";

/// Writes a schema to a folder that the user named, which is created if it is missing, and returns its path.
pub fn write_schema(folder: &Path, name: &str, schema: &Value) -> Result<String, CommandError> {
    let path = folder.join(format!("{name}.json"));
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| CommandError::failed(format!("`{shown}` cannot be written: {error}"));
    write_user_file(&path, text_of(schema).map_err(failed)?.as_bytes()).map_err(failed)?;
    Ok(shown)
}

fn text_of(schema: &Value) -> std::io::Result<String> {
    Ok(serde_json::to_string_pretty(schema)? + "\n")
}

/// Adds the comment that names the schema to a new YAML file; other files are unchanged. `path` is relative to the
/// project.
pub fn annotate(path: &str, text: String) -> String {
    let is_yaml = matches!(path.rsplit_once('.'), Some((_, "yaml" | "yml")));
    let Some(schema) = schema_name_of_path(path).filter(|_| is_yaml) else { return text };
    let inside = SCHEMA_FOLDER.trim_start_matches(".ai/");
    // The path from the folder of the file up to `.ai/`.
    let up = "../".repeat(path.matches('/').count().saturating_sub(1));
    format!("# yaml-language-server: $schema={up}{inside}/{schema}.json\n{text}")
}

/// Writes the JSON Schema that belongs to the new file at `path` into the project. The `yaml-language-server` comment
/// of the new file refers to this schema. Writes nothing if the file is no YAML file or no schema exists for its path.
pub fn write_schema_of(files: &mut FileSet, path: &str) -> Result<(), CommandError> {
    let is_yaml = matches!(path.rsplit_once('.'), Some((_, "yaml" | "yml")));
    match schema_of_path(path).filter(|_| is_yaml) {
        Some(schema) => {
            let path = format!("{SCHEMA_FOLDER}/{}.json", schema.name);
            files.replace(Path::new(&path), text_of(&schema.schema)?.as_bytes()).map(drop)
        }
        None => Ok(()),
    }
}
