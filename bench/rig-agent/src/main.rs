//! An agent of the library rig with one tool, beside `rye run` in `bench/rig.py`.
//!
//! `rig-agent BASE_URL FOLDER TURNS`: sends one prompt to a server in the form of the chat API, and executes the calls
//! of the tool `read`, which reads a file of FOLDER, until the model replies without a call.

use std::path::PathBuf;

use rig::client::CompletionClient;
use rig::completion::{Prompt, ToolDefinition};
use rig::providers::openai;
use rig::tool::Tool;
use serde::Deserialize;

struct Read {
    folder: PathBuf,
}

#[derive(Deserialize)]
struct ReadArguments {
    path: String,
}

impl Tool for Read {
    const NAME: &'static str = "rye_file_system_read";
    type Error = std::io::Error;
    type Args = ReadArguments;
    type Output = String;

    async fn definition(&self, _prompt: String) -> ToolDefinition {
        ToolDefinition {
            name: Self::NAME.to_owned(),
            description: "Read a file of the project.".to_owned(),
            parameters: serde_json::json!({
                "type": "object",
                "properties": { "path": { "type": "string", "description": "path of the file" } },
                "required": ["path"],
            }),
        }
    }

    async fn call(&self, arguments: ReadArguments) -> Result<String, std::io::Error> {
        std::fs::read_to_string(self.folder.join(arguments.path))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [base_url, folder, turns] = arguments.as_slice() else { return Err("expected BASE_URL FOLDER TURNS".into()) };
    let client: openai::CompletionsClient =
        openai::CompletionsClient::builder().api_key("none").base_url(base_url).build()?;
    let agent = client.agent("model").preamble("Talk.").tool(Read { folder: folder.into() }).build();
    let text = agent.prompt("Read the note again and again.").max_turns(turns.parse()?).await?;
    println!("{text}");
    Ok(())
}
