//! Runs the directive `hello` of `examples/hello` with its script instead of a model, and prints the events.
//!
//! `cargo run -p rye --example embed-scripted-run`

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::fs;
use std::path::Path;

use rye::{CompileRequest, EngineBuilder, ItemId, LiveEvent, Project, SessionRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The program runs a copy of the example, because a run stores its thread in the project.
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    copy_folder(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/hello"), root)?;
    let project = Project::open(root)?.without_user_space().trust_everything();
    let request = CompileRequest::new(ItemId::parse("hello")?).with_inputs(serde_json::Map::new());
    let compilation = project.plan(&request)?;
    println!("plan {}: {} tools", compilation.plan_id, compilation.plan.palette.len());

    let engine = EngineBuilder::new(&project).script(root.join("script.yaml"))?.open()?;
    let mut session = engine.open(SessionRequest::start(compilation)).await?;
    let mut events = session.subscribe();
    while let Some(event) = events.next().await {
        if let LiveEvent::Event { thread, event } = event {
            println!("{thread} {}", event.body.reader_name());
        }
    }
    let result = session.join().await;
    println!("{}: {}", result.status.as_str(), serde_json::json!(result.outputs));
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
