//! Sandboxed tools in each language: their attempts and results, and slow, crashing, flooding and invalid tools. A
//! language that is not installed is reported and skipped.
#![allow(clippy::print_stderr, reason = "a test that is skipped says why")]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rye_compiler::tool_spec::{ToolKind, ToolSpec};
use rye_engine::scripts::SyntaxTreeReader;
use rye_engine::tool::mcp::config::{McpTransport, SandboxOpenings};
use rye_engine::tool::mcp::{McpConnection, McpServer};
use rye_engine::tool::registry::{ToolFile, ToolRegistry};
use rye_engine::tool::{Invocation, ToolOutcome};
use rye_grammar::tool_header::{self, ToolLanguage};
use rye_grammar::{ItemId, SourceId};
use serde_json::{Value, json};

use super::sandboxes::{Machine, PATH, is_offered};

/// Makes this binary call one tool: `__tool PROJECT WRITE NET FILE PARAMETERS`; lists are separated by commas.
pub const TOOL_MODE: &str = "__tool";

pub const TESTS: [(&str, fn()); 6] = [
    ("tools: none reads keys, writes elsewhere or opens a socket ungranted", nothing_ungranted),
    ("tools: what is granted is there and no more", what_is_granted),
    ("tools: good, slow, crashing, flooding and lying", good_and_bad),
    ("tools: requests go where they are granted", requests_go_where_granted),
    ("tools: a server ends with its owner, and so does what escaped", a_server_ends_with_its_owner),
    ("tools: a server of the settings without a wall is outside", server_without_sandbox_reads_outside),
];

const PYTHON: &str = r#"
import os, socket, subprocess, sys, time
__tool_description__ = "Tries things."
CONFIG_SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}, "do": {"type": "string"}, "n": {"type": "integer"}}}

def attempt(what):
    try:
        what()
        return "done"
    except PermissionError:
        return "refused"
    except OSError as error:
        return str(error)

def execute(params, root):
    do = params.get("do")
    if do == "slow":
        time.sleep(60)
    if do == "stay":
        escaped = subprocess.Popen(["setsid", "sleep", "300"])
        with open(root + "/out/pids", "w") as file:
            file.write(f"{os.getpid()}\n{escaped.pid}\n")
        time.sleep(300)
    if do == "crash":
        os._exit(3)
    if do == "flood":
        return "x" * 3_000_000
    if do == "lie":
        return params["n"].upper()
    if do == "good":
        return {"n": params["n"] + 1}
    return {
        "ssh": attempt(lambda: open(os.path.expanduser("~/.ssh/id_ed25519")).read()),
        "outside": attempt(lambda: open(root + "/../other/new", "w")),
        "project": attempt(lambda: open(root + "/top.txt", "a")),
        "out": attempt(lambda: open(root + "/out/x", "w")),
        "socket": attempt(lambda: socket.create_connection(("127.0.0.1", params["port"])).close()),
        "secret": os.environ.get("SECRET_API_KEY", "none"),
    }
"#;

const SCRIPT: &str = r#"
import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { homedir } from "node:os";
export const __tool_description__ = "Tries things.";
export const CONFIG_SCHEMA = { type: "object", properties: { port: { type: "integer" }, do: { type: "string" }, n: { type: "integer" } } };

const word = (error) => (["EACCES", "EPERM"].includes(error.code) ? "refused" : String(error));
const attempt = (what) => {
  try {
    what();
    return "done";
  } catch (error) {
    return word(error);
  }
};
const reach = (port) =>
  new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve("done");
    });
    socket.on("error", (error) => resolve(word(error)));
  });

export async function execute(params, root) {
  if (params.do === "slow") await new Promise((resolve) => setTimeout(resolve, 60000));
  if (params.do === "crash") process.exit(3);
  if (params.do === "flood") return "x".repeat(3000000);
  if (params.do === "lie") return params.n.toUpperCase();
  if (params.do === "good") return { n: params.n + 1 };
  return {
    ssh: attempt(() => readFileSync(homedir() + "/.ssh/id_ed25519")),
    outside: attempt(() => writeFileSync(root + "/../other/new", "")),
    project: attempt(() => appendFileSync(root + "/top.txt", "")),
    out: attempt(() => writeFileSync(root + "/out/x", "")),
    socket: await reach(params.port),
    secret: process.env.SECRET_API_KEY ?? "none",
  };
}
"#;

const SHELL: &str = r"#!/bin/bash
# rye: {description: Tries things., parameters: {properties: {port: {type: integer}, do: {type: string}, n: {type: integer}}}}
";

/// The shell form of the tool's attempts; `$port`, `$what` and `$n` are set before it.
const SHELL_ATTEMPTS: &str = r#"
attempt() {
  if said=$( (eval "$1") 2>&1 > /dev/null); then echo done
  else case $said in *"Permission denied"*) echo refused ;; *) printf '%s' "${said//\"/}" ;; esac
  fi
}
case $what in
  slow) sleep 60 ;;
  crash) exit 3 ;;
  flood) head -c 3000000 /dev/zero | tr '\0' x; exit 0 ;;
  lie) set -eu; echo "$((n)) of $nothing_of_this_name" ;;
  good) echo "{\"n\": $((n + 1))}"; exit 0 ;;
esac
root=$PWD
echo "{\"ssh\": \"$(attempt 'cat ~/.ssh/id_ed25519')\", \"outside\": \"$(attempt 'echo > ../other/new')\"," \
  "\"project\": \"$(attempt 'echo >> top.txt')\", \"out\": \"$(attempt 'echo > out/x')\"," \
  "\"socket\": \"$(attempt "exec 3<>/dev/tcp/127.0.0.1/$port")\", \"secret\": \"${SECRET_API_KEY:-none}\"}"
"#;

/// The tool of [`PYTHON`] as an MCP server.
const MCP_SERVER: &str = r#"
import json, sys
import tries
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
        send(id, {"tools": [{"name": "tries", "description": "Tries things.", "inputSchema": tries.CONFIG_SCHEMA}]})
    elif method == "tools/call":
        given = request["params"].get("arguments", {})
        if given.get("do") == "flood":
            sys.stdout.write("x" * 40_000_000 + "\n")
            sys.stdout.flush()
        try:
            text = json.dumps(tries.execute(given, sys.argv[1]))
            send(id, {"content": [{"type": "text", "text": text}]})
        except Exception as error:
            send(id, {"content": [{"type": "text", "text": str(error)}], "isError": True})
"#;

/// A language: its name, the file of its tool, and the program that must be installed.
const LANGUAGES: [(&str, &str, &str); 6] = [
    ("Python", "tries.py", "python3"),
    ("JavaScript", "tries.mjs", "node"),
    ("TypeScript", "tries.ts", "node"),
    ("shell", "tries.sh", "bash"),
    ("a command", "tries.yaml", "bash"),
    ("MCP", "served.py", "python3"),
];

/// Runs the process that was started with [`TOOL_MODE`].
pub fn call(project: &str, write: &str, net: &str, file: &str, parameters: &str) {
    let list = |text: &str| text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (write, net) = (list(write), list(net));
    let outcome = super::multi_thread_runtime().block_on(run(Path::new(project), &write, &net, file, parameters));
    let text = json!({"content": outcome.content, "is_error": outcome.is_error}).to_string();
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

async fn run(project: &Path, write: &[String], net: &[String], file: &str, parameters: &str) -> ToolOutcome {
    let item_path = format!(".ai/tools/project/{file}");
    let path = project.join(&item_path);
    let mut text = fs::read_to_string(&path).unwrap();
    let mut tool_file = ToolFile { path: Some(path), project: project.to_owned(), ..ToolFile::default() };
    let mut language = ToolLanguage::of_path(file).unwrap();
    if matches!(file, "served.py" | "bare.py") {
        let openings = SandboxOpenings { write: write.to_vec(), net: net.to_vec(), read: Vec::new() };
        let server = server(project, (file == "served.py").then_some(openings));
        let definitions = match McpConnection::open(&server, project).await {
            Ok(connection) => connection.definitions().await,
            Err(error) => return ToolOutcome::error(error.to_string()),
        };
        text = definitions[0].item_text(&server);
        tool_file.server = Some(server);
        language = ToolLanguage::Yaml;
    }
    let parsed = tool_header::parse(SourceId(0), &text, language, &SyntaxTreeReader);
    assert_eq!(parsed.errors, []);
    let spec = ToolSpec::read(&parsed.tree).unwrap();
    assert!(!matches!(spec.kind, ToolKind::Builtin { .. }));
    tool_file.item_path = item_path.into();
    tool_file.text = Arc::from(text);
    let parameters: Value = serde_json::from_str(parameters).unwrap();
    let invocation = Invocation {
        item_id: ItemId::parse("project/tries").unwrap(),
        timeout: Duration::from_secs(if parameters["do"] == "slow" { 2 } else { 60 }),
        parameters,
        project_root: project.to_owned(),
        thread_id: "t-1".into(),
        event: rye_engine::tool::CALL_EVENT,
        call_id: "c-1".into(),
        changes: None,
        persistent: std::sync::Arc::default(),
        halt: rye_engine::tool::cancellation::CancellationToken::never(),
        written: rye_engine::tool::process::SharedOutput::default(),
        thread_count: rye_engine::thread_count::ThreadCount::default(),
        write: write.to_vec(),
        net: net.to_vec(),
        local_hosts: net.to_vec(),
        write_bounds: Vec::new(),
        may_write_item: Vec::new(),
    };
    ToolRegistry::standard().prepare(&spec, &tool_file).unwrap().run(invocation).await
}

fn server(project: &Path, sandbox: Option<SandboxOpenings>) -> McpServer {
    let script = ".ai/tools/project/served.py".to_owned();
    let command = vec!["python3".to_owned(), "-B".to_owned(), script, project.to_str().unwrap().to_owned()];
    McpServer {
        name: "s".into(),
        transport: McpTransport::Stdio { command, environment: std::collections::BTreeMap::new(), sandbox },
        timeout: Duration::from_mins(1),
        origin: ".mcp.json".into(),
        of_project: true,
        keys: Vec::new(),
    }
}

/// Returns a machine with every tool in its project.
fn machine() -> Machine {
    let machine = Machine::new();
    let folder = machine.at("project/.ai/tools/project");
    fs::create_dir_all(&folder).unwrap();
    let of_shell = "port=$RYE_PARAM_port what=$RYE_PARAM_do n=$RYE_PARAM_n\n";
    let of_command = format!("port=$1 what=$2 n=$3\n{SHELL_ATTEMPTS}");
    fs::write(machine.at("project/tries.bash"), of_command).unwrap();
    let command = json!(["bash", "tries.bash", "{port}", "{do}", "{n}"]);
    let properties = json!({"port": {"type": "integer"}, "do": {"type": "string"}, "n": {"type": "integer"}});
    let yaml = json!({"description": "Tries things.", "kind": "command", "command": command, "parameters": {"properties": properties}});
    for (name, text) in [
        ("tries.py", PYTHON.to_owned()),
        ("tries.mjs", SCRIPT.to_owned()),
        ("tries.ts", SCRIPT.replace("(params, root)", "(params: { port: number; do: string; n: any }, root: string)")),
        ("tries.sh", format!("{SHELL}{of_shell}{SHELL_ATTEMPTS}")),
        ("tries.yaml", yaml.to_string()),
        ("served.py", MCP_SERVER.to_owned()),
        ("bare.py", MCP_SERVER.to_owned()),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
    fs::create_dir_all(machine.at("project/out")).unwrap();
    machine
}

fn has(program: &str, whose: &str) -> bool {
    let found = Command::new(program).arg("--version").env("PATH", PATH).output().is_ok_and(|o| o.status.success());
    if !found {
        eprintln!("skipped: tools of {whose}, for `{program}` is not installed");
    }
    found
}

/// Calls a tool; returns the content of the result, and true if it is an error.
fn answer(machine: &Machine, write: &str, net: &str, file: &str, parameters: &Value) -> (Value, bool) {
    // A command drops the arguments of missing parameters, so every parameter gets a value.
    let mut all = json!({"port": 0, "do": "", "n": 0});
    for (name, value) in parameters.as_object().into_iter().flatten().filter(|_| !file.starts_with("asks")) {
        all[name] = value.clone();
    }
    let parameters = if file.starts_with("asks") { parameters.clone() } else { all };
    let project = machine.at("project");
    let content =
        machine.run_this_binary(&[TOOL_MODE, project.to_str().unwrap(), write, net, file, &parameters.to_string()]);
    let answer: Value = serde_json::from_str(&content).unwrap_or_else(|e| panic!("{file}: {e}: {content}"));
    (answer["content"].clone(), answer["is_error"] == true)
}

/// Returns false if the tool is TypeScript and the installed node is too old for it.
fn is_known(file: &str, content: &Value) -> bool {
    let unknown = file == "tries.ts" && content.as_str().is_some_and(|s| s.contains("need node 22.13 or newer"));
    if unknown {
        eprintln!("skipped: TypeScript, for this node is too old");
    }
    !unknown
}

/// Returns the first line of a command's output as JSON. The last line of the output is the exit status.
fn first_line(content: &Value) -> Value {
    let parsed = |text: &str| serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or_default();
    content.as_str().map_or_else(|| content.clone(), parsed)
}

fn each(what: impl Fn(&Machine, &str, &str)) {
    let machine = machine();
    for (name, file, program) in LANGUAGES {
        if has(program, name) {
            what(&machine, name, file);
        }
    }
}

fn nothing_ungranted() {
    if !is_offered(4, true) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    each(|machine, name, file| {
        let (tried, _) = answer(machine, "", "", file, &json!({"port": port}));
        if is_known(file, &tried) {
            let nothing = json!({"ssh": "refused", "outside": "refused", "project": "refused", "out": "refused",
                "socket": "refused", "secret": "none"});
            assert_eq!(first_line(&tried), nothing, "{name}");
        }
    });
}

fn what_is_granted() {
    if !is_offered(4, true) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    each(|machine, name, file| {
        let (tried, _) = answer(machine, "out/", "127.0.0.1", file, &json!({"port": port}));
        if is_known(file, &tried) {
            let granted = json!({"ssh": "refused", "outside": "refused", "project": "refused", "out": "done",
                "socket": "done", "secret": "none"});
            assert_eq!(first_line(&tried), granted, "{name}");
        }
    });
}

fn good_and_bad() {
    each(|machine, name, file| {
        let ask = |what: &str| answer(machine, "", "", file, &json!({"do": what, "n": 41}));
        let (good, failed) = ask("good");
        if !is_known(file, &good) {
            return;
        }
        assert_eq!((first_line(&good), failed), (json!({"n": 42}), false), "{name}: {good}");
        for what in ["slow", "crash", "lie"] {
            let (content, failed) = ask(what);
            let text = content.as_str().unwrap_or_default();
            assert!(failed && !text.is_empty(), "{name}, {what}: {content}");
            let in_time = text.contains("timed out after 2 s") || text.contains("within 2 seconds");
            assert_eq!(in_time, what == "slow", "{name}, {what}: {text}");
        }
        let (flood, _) = ask("flood");
        assert!(flood.to_string().len() < 1_200_000, "{name}: {} bytes", flood.to_string().len());
        // Parameters that violate the schema never reach the tool.
        let (refused, failed) = answer(machine, "", "", file, &json!({"n": "41"}));
        assert!(failed && refused.as_str().is_some_and(|s| s.contains("`n` must be integer")), "{name}: {refused}");
    });
}

fn requests_go_where_granted() {
    let machine = machine();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0_u8; 4096]);
            // The server redirects to the metadata address of a cloud machine.
            let to =
                "HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(to.as_bytes()).unwrap();
        }
    });
    let text = format!("description: d\nkind: http\nurl: http://127.0.0.1:{port}/x\n");
    fs::write(machine.at("project/.ai/tools/project/asks.yaml"), text).unwrap();
    for (net, message) in [
        ("", "no grant of this tool names net=\"127.0.0.1\""),
        ("*", "only a grant that names the host can reach it"),
        ("127.0.0.1", "no grant of this tool names net=\"169.254.169.254\""),
        ("127.0.0.1,*", "only a grant that names the host can reach it"),
    ] {
        let (content, failed) = answer(&machine, "", net, "asks.yaml", &json!({}));
        assert!(failed && content.as_str().is_some_and(|text| text.contains(message)), "{net}: {content}");
    }
}

fn a_server_ends_with_its_owner() {
    if !has("python3", "MCP") {
        return;
    }
    let machine = machine();
    let project = machine.at("project");
    let parameters = json!({"do": "stay", "port": 0, "n": 0}).to_string();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([TOOL_MODE, project.to_str().unwrap(), "out/", "", "served.py", &parameters])
        .env("PATH", PATH)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let pids = loop {
        let text = fs::read_to_string(project.join("out/pids")).unwrap_or_default();
        if text.lines().count() == 2 {
            break text;
        }
        assert!(start.elapsed() < Duration::from_mins(1), "never started");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(pids.lines().all(super::is_alive));
    owner.kill().unwrap();
    owner.wait().unwrap();
    for pid in pids.lines() {
        assert!(super::ends(pid), "{pid} lives");
    }
}

/// Checks that a server with `sandbox: none` really runs outside the sandbox, as "NO SANDBOX" claims.
fn server_without_sandbox_reads_outside() {
    if !has("python3", "MCP") {
        return;
    }
    let machine = machine();
    let (tried, _) = answer(&machine, "", "", "bare.py", &json!({"port": 9}));
    assert_eq!((&tried["ssh"], &tried["secret"]), (&json!("done"), &json!("none")));
}
