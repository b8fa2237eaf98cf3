//! A project with an MCP server.

use crate::rye::TestProject;

/// A server with one tool, whose description is the contents of `about.txt`.
pub const SERVER: &str = r#"import json, sys
def send(id, result):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    request = json.loads(line)
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        send(id, {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "t", "version": "1"}})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        send(id, {"tools": [{"name": "double.it", "description": open("about.txt").read(), "inputSchema": schema}]})
    elif method == "tools/call":
        send(id, {"content": [{"type": "text", "text": str(2 * request["params"]["arguments"]["n"])}]})
    elif id is not None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}) + "\n")
        sys.stdout.flush()
"#;

/// Returns a project with the server `my_math`; `None` if Python is not installed.
pub fn place() -> Option<TestProject> {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: `python3` is not installed");
        return None;
    }
    let place = TestProject::new();
    place.run_ok(&["init"]);
    place.write("server.py", SERVER);
    place.write("about.txt", "Doubles.");
    place.write(".mcp.json", r#"{"mcpServers": {"my math": {"command": "python3", "args": ["server.py"]}}}"#);
    Some(place)
}
