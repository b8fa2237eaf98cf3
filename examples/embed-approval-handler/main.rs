//! Answers approval requests in code: commands that only read are approved, everything else is refused.
//!
//! `cargo run -p rye --example embed-approval-handler`

#![allow(clippy::print_stdout, reason = "a program that prints its result")]

use rye::{Answer, Approvals, CompileRequest, EngineBuilder, ItemId, LiveEvent, Project, SessionRequest};

const DIRECTIVE: &str = r#"```xml
<directive name="tidy" version="1.0.0">
  <metadata>
    <description>List the files, then remove them.</description>
    <model provider="scripted" tier="fast"/>
    <limits turns="4" spend="0.05"/>
    <permissions><execute><tool>rye.bash.bash</tool></execute></permissions>
  </metadata>
</directive>
```

Tidy up.
"#;

const SCRIPT: &str = r"steps:
  - tool_calls:
      - { name: rye_bash_bash, input: { command: ls } }
  - tool_calls:
      - { name: rye_bash_bash, input: { command: rm -r . } }
  - text: I could only list the files.
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let directives = folder.path().join(".ai/directives");
    std::fs::create_dir_all(&directives)?;
    std::fs::write(directives.join("tidy.md"), DIRECTIVE)?;
    let script = folder.path().join("script.yaml");
    std::fs::write(&script, SCRIPT)?;

    // The directive comes from this program, so the program accepts the grant of a shell.
    let project = Project::open(folder.path())?.without_user_space().trust_everything();
    let compilation = project.plan(&CompileRequest::new(ItemId::parse("tidy")?).with_inputs(serde_json::Map::new()))?;
    let engine = EngineBuilder::new(&project).approvals(Approvals::Ask).script(&script)?.open()?;
    let mut session = engine.open(SessionRequest::start(compilation)).await?;
    let mut events = session.subscribe();
    while let Some(event) = events.next().await {
        if let LiveEvent::Question(question) = event {
            let answer = if question.what.contains("\"ls\"") { Answer::Approve } else { Answer::Refuse };
            println!("{}: {answer:?}", question.what);
            session.answer(question.id, answer);
        }
    }
    println!("{}", session.join().await.result.unwrap_or_default());
    Ok(())
}
