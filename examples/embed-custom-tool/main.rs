//! Adds a tool that this program implements, and runs a directive that calls it.
//!
//! `cargo run -p rye --example embed-custom-tool`

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use std::sync::Arc;

use rye::{Approvals, BoxFuture, CompileRequest, EngineBuilder, ItemId, Project, SessionRequest, Tool, ToolOutcome};

/// The file of the tool: its description, parameters and schema. `builtin` is the name that the program registers.
const TOOL: &str = r#"kind: builtin
builtin: stock
version: "1.0.0"
description: Returns the number of items in stock.
parameters:
  type: object
  properties:
    article: { type: string, description: the name of the article }
  required: [article]
"#;

const DIRECTIVE: &str = r#"```xml
<directive name="order" version="1.0.0">
  <metadata>
    <description>Report the stock of an article.</description>
    <model provider="scripted" tier="fast"/>
    <limits turns="3" spend="0.05"/>
    <permissions><execute><tool>shop.stock</tool></execute></permissions>
  </metadata>
</directive>
```

How many lamps are in stock?
"#;

const SCRIPT: &str = r#"steps:
  - tool_calls:
      - { name: shop_stock, input: { article: lamp } }
  - expect: { results: "42" }
    text: There are 42 lamps.
"#;

/// The stock of a shop.
struct Stock;

impl Tool for Stock {
    fn run(&self, invocation: rye::Invocation) -> BoxFuture<'_, ToolOutcome> {
        Box::pin(async move {
            match invocation.parameters.get("article").and_then(|article| article.as_str()) {
                Some("lamp") => ToolOutcome::ok(42),
                Some(other) => ToolOutcome::error(format!("no article named `{other}`")),
                None => ToolOutcome::error("no article"),
            }
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let ai = folder.path().join(".ai");
    for (path, text) in [("directives/order.md", DIRECTIVE), ("tools/shop/stock.yaml", TOOL)] {
        let path = ai.join(path);
        std::fs::create_dir_all(path.parent().ok_or("a path has a parent")?)?;
        std::fs::write(path, text)?;
    }
    let script = folder.path().join("script.yaml");
    std::fs::write(&script, SCRIPT)?;

    // The files come from this program, so the program trusts the files and allows their calls.
    let project = Project::open(folder.path())?.without_user_space().trust_everything();
    let compilation =
        project.plan(&CompileRequest::new(ItemId::parse("order")?).with_inputs(serde_json::Map::new()))?;
    let engine = EngineBuilder::new(&project)
        .approvals(Approvals::Allow)
        .script(&script)?
        .tool("stock", Arc::new(Stock))
        .open()?;
    let result = engine.open(SessionRequest::start(compilation)).await?.join().await;
    if let Some(error) = result.error {
        return Err(error.message.into());
    }
    println!("{}", result.result.unwrap_or_default());
    Ok(())
}
