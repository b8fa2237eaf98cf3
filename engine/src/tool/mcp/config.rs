//! The MCP servers of the settings, which the compiler reads, and the trust requirement of each server.

use rye_compiler::command_files::{files_of_argv, files_of_value};
pub use rye_compiler::mcp_servers::{McpServer, McpTransport, SandboxOpenings, ServersError, read_servers};
use rye_compiler::plan::SourcePlace;
use rye_compiler::trust::{Subject, TrustRequirement, TrustRequirementKind, describe_server, one_line};
use rye_compiler::world::ItemKind;

use super::variables::expand_variables;

/// Returns the trust requirement of a server that the project configures; `None` if the user's own files configure the
/// server.
pub fn trust_requirement(server: &McpServer) -> Option<TrustRequirement> {
    server.of_project.then(|| TrustRequirement {
        kind: TrustRequirementKind::Server,
        name: server.name.clone(),
        what: one_line(&describe_server(&server.name, &server.describe(), server.isolation())),
        subjects: vec![Subject {
            kind: ItemKind::Config,
            id: format!("mcp:{}", server.name),
            sha256: server.transport_sha256(),
        }],
        programs: named_files(server),
        place: Some(SourcePlace { file: server.origin.clone(), line: 1, column: 1 }),
    })
}

/// Returns the words of the server's command, and of the values of `environment`, that may name project files. First
/// replaces references such as `${NAME}` by the variables of this process.
fn named_files(server: &McpServer) -> Vec<String> {
    let McpTransport::Stdio { command, environment, .. } = &server.transport else { return Vec::new() };
    // If a variable is not set, the text stays unchanged: the server cannot start anyway.
    let fill = |text: &String| expand_variables(text).unwrap_or_else(|_| text.clone());
    let command: Vec<String> = command.iter().map(fill).collect();
    let mut words = files_of_argv(&command);
    words.extend(environment.values().flat_map(|value| files_of_value(&fill(value))));
    words.sort();
    words.dedup();
    words
}
