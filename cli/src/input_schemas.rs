//! JSON Schemas of input files on disk, and the comments of YAML files that name them for editors.

use std::path::Path;

use rye_compiler::input_schema::schema_of_path;
use rye_engine::rooted_dir::RootedDir;

use crate::CommandError;

/// Folder of the input schemas, below the project, that the comments of new files name.
const SCHEMA_FOLDER: &str = ".ai/state/schemas";

/// Writes a schema to a folder, and returns its path.
pub fn write_schema(folder: &Path, name: &str, schema: &serde_json::Value) -> Result<String, CommandError> {
    let path = folder.join(format!("{name}.json"));
    let failed = |error: &dyn std::fmt::Display| {
        CommandError::failed(format!("`{}` cannot be written: {error}", path.display()))
    };
    let mut text = serde_json::to_string_pretty(schema).map_err(|error| failed(&error))?;
    text.push('\n');
    std::fs::create_dir_all(folder).map_err(|error| failed(&error))?;
    let within = RootedDir::open(folder).map_err(|error| failed(&error))?;
    within.replace(Path::new(&format!("{name}.json")), text.as_bytes()).map_err(|error| failed(&error))?;
    Ok(path.display().to_string())
}

/// Adds the comment that names the schema to a new YAML file; other files are unchanged. `path` is relative to the
/// project.
pub fn annotate(path: &str, text: String) -> String {
    let is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    let Some(schema) = schema_of_path(path).filter(|_| is_yaml) else { return text };
    let inside = SCHEMA_FOLDER.trim_start_matches(".ai/");
    // The folders between the file and `.ai/`.
    let up = "../".repeat(path.matches('/').count().saturating_sub(1));
    format!("# yaml-language-server: $schema={up}{inside}/{}.json\n{text}", schema.name)
}

/// Writes the schema of a new YAML file, which its comment names, to the project.
pub fn write_schema_of(project: &Path, path: &str) -> Result<(), CommandError> {
    let is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    if let Some(schema) = schema_of_path(path).filter(|_| is_yaml) {
        write_schema(&project.join(SCHEMA_FOLDER), &schema.name, &schema.schema)?;
    }
    Ok(())
}
