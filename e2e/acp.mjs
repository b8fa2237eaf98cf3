// Independent clients of `rye acp`: the TypeScript SDK here, the Python SDK in `acp_client.py`, the program `acp-cli`. Each one opens a
// session, prompts, answers a permission request and cancels; the SDKs also list and load. Prints `ok` or `FAIL` for each client.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";

import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const RYE = process.argv[2];
const PYTHON_SDK = "agent-client-protocol==0.12.1";
const ACP_CLI = "0.3.1";

const DIRECTIVE = `# Talk

\`\`\`xml
<directive name="talk" version="1.0.0">
  <metadata>
    <description>Talk.</description>
    <model provider="scripted" tier="fast"/>
    <limits turns="4" spend="0.50"/>
    <permissions><execute><tool write="out/">rye.bash.bash</tool></execute></permissions>
  </metadata>
</directive>
\`\`\`

Answer briefly.
`;
const SCRIPT = `steps:
  - { tool_calls: [{ name: rye_bash_bash, input: { command: 'echo one >> out/log' } }] }
  - { text: Done. }
  - { text: Never., delay_ms: 60000 }
`;

function project() {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "rye-acp-")));
  for (const folder of [".home/.ai", ".ai/directives", "out"]) mkdirSync(join(root, folder), { recursive: true });
  writeFileSync(join(root, ".ai/directives/talk.md"), DIRECTIVE);
  writeFileSync(join(root, "script.yaml"), SCRIPT);
  execFileSync(RYE, ["trust"], { ...inside(root), stdio: ["ignore", "ignore", "inherit"] });
  return root;
}

const inside = (root) => ({ cwd: root, env: { PATH: process.env.PATH, HOME: join(root, ".home") } });

/** Connects a client; runs \`drive\` with the agent, the updates and the permission requests so far. */
async function connect(root, drive) {
  const process_ = spawn(RYE, ["acp", "talk", "--script", "script.yaml"], { ...inside(root), stdio: ["pipe", "pipe", "inherit"] });
  const seen = { updates: [], asked: 0 };
  const ended = new Promise((resolve) => process_.on("close", resolve));
  await client({ name: "e2e" })
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      seen.asked += 1;
      const once = params.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: once.optionId } };
    })
    .onNotification(methods.client.session.update, ({ params }) => void seen.updates.push(params.update))
    .connectWith(ndJsonStream(Writable.toWeb(process_.stdin), Readable.toWeb(process_.stdout)), async (agent) => {
      const begun = await agent.request(methods.agent.initialize, { protocolVersion: 1, clientCapabilities: {} });
      assert.equal(begun.protocolVersion, 1);
      await drive(agent, seen);
    });
  process_.stdin.end();
  assert.equal(await ended, 0);
}

const text = (seen, kind) => seen.updates.filter((u) => u.sessionUpdate === kind).map((u) => u.content.text).join("");
const say = (sessionId, words) => ({ sessionId, prompt: [{ type: "text", text: words }] });

async function typescript(root) {
  let sessionId;
  await connect(root, async (agent, seen) => {
    ({ sessionId } = await agent.request(methods.agent.session.new, { cwd: root, mcpServers: [] }));
    const done = await agent.request(methods.agent.session.prompt, say(sessionId, "go"));
    assert.equal(done.stopReason, "end_turn");
    assert.equal(text(seen, "agent_message_chunk"), "Done.");
    assert.equal(seen.asked, 1);
    assert.equal(readFileSync(join(root, "out/log"), "utf8"), "one\n");
    const waiting = agent.request(methods.agent.session.prompt, say(sessionId, "wait"));
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await agent.notify(methods.agent.session.cancel, { sessionId });
    assert.equal((await waiting).stopReason, "cancelled");
    await agent.request(methods.agent.session.close, { sessionId });
  });
  await connect(root, async (agent, seen) => {
    const { sessions } = await agent.request(methods.agent.session.list, { cwd: root });
    assert.deepEqual([sessions[0].sessionId, sessions[0].title], [sessionId, "go"]);
    await agent.request(methods.agent.session.load, { sessionId, cwd: root, mcpServers: [] });
    assert.ok(text(seen, "user_message_chunk").startsWith("go"));
    assert.ok(text(seen, "agent_message_chunk").startsWith("Done."));
  });
}

async function python(root) {
  const folder = join(import.meta.dirname, ".python");
  const program = join(folder, "bin/python");
  if (!existsSync(program)) execFileSync("python3", ["-m", "venv", folder]);
  execFileSync(program, ["-m", "pip", "install", "-q", PYTHON_SDK], { stdio: ["ignore", "ignore", "inherit"] });
  execFileSync(program, [join(import.meta.dirname, "acp_client.py"), RYE, root], { stdio: ["ignore", "inherit", "inherit"] });
}

/** The events of all threads of the project. */
function events(root) {
  const threads = join(root, ".ai/state/threads");
  const files = existsSync(threads) ? readdirSync(threads, { recursive: true }) : [];
  const texts = files.filter((name) => name.endsWith("transcript.jsonl")).map((name) => readFileSync(join(threads, name), "utf8"));
  // The last line may be incomplete while the thread runs.
  return texts.flatMap((text) => text.split("\n").slice(0, -1)).map((line) => JSON.parse(line));
}

async function waitFor(root, isExpected) {
  for (let tries = 0; !events(root).some(isExpected); tries += 1) {
    assert.ok(tries < 600, "the expected event does not occur");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** The program `acp-cli`. It lists and loads only its own records of sessions, so it sends no `session/list` and no `session/load`. */
async function acpCli(root) {
  const folder = join(import.meta.dirname, ".acp-cli");
  const program = join(folder, "bin/acp-cli");
  if (!existsSync(program)) {
    const args = ["install", "acp-cli", "--version", ACP_CLI, "--locked", "--debug", "--quiet", "--root", folder];
    execFileSync("cargo", args, { stdio: ["ignore", "ignore", "inherit"] });
  }
  const acp = ["acp", "talk", "--script"];
  // If the last chunk and the response to the prompt arrive together, acp-cli chooses at random which one it handles and ends without the
  // chunk if it takes the response first (`select!` in its `cli/prompt.rs`). So the response arrives one second later.
  const pause = 'while IFS= read -r line; do case "$line" in *stopReason*) sleep 1;; esac; printf "%s\\n" "$line"; done';
  const rye = { command: "sh", args: ["-c", `"$@" | ${pause}`, "sh", RYE, ...acp, "script.yaml"] };
  const slow = { command: RYE, args: [...acp, "slow.yaml"] };
  mkdirSync(join(root, ".home/.acp-cli"));
  writeFileSync(join(root, ".home/.acp-cli/config.json"), JSON.stringify({ agents: { rye, slow } }));
  writeFileSync(join(root, "slow.yaml"), "steps: [{ text: Never., delay_ms: 60000 }]\n");
  const run = (...args) => execFileSync(program, args, { ...inside(root), encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  assert.equal(run("rye", "--approve-all", "exec", "go"), "Done.");
  assert.equal(readFileSync(join(root, "out/log"), "utf8"), "one\n");
  assert.equal(run("rye", "--deny-all", "exec", "go"), "Done.");
  assert.equal(readFileSync(join(root, "out/log"), "utf8"), "one\n");
  rmSync(join(root, ".ai/state"), { recursive: true });
  const waiting = spawn(program, ["slow", "--approve-all", "wait"], { ...inside(root), stdio: "ignore" });
  const ended = new Promise((resolve) => waiting.on("close", resolve));
  await waitFor(root, (event) => event.type === "attempt_intended");
  run("slow", "cancel");
  await ended;
  await waitFor(root, (event) => event.type === "prompt_ended" && event.status === "interrupted");
}

let failed = 0;
for (const [name, drive] of Object.entries({ typescript, python, "acp-cli": acpCli })) {
  const root = project();
  try {
    await drive(root);
    console.log(`ok   acp: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL acp: ${name}: ${error.stack ?? error}`);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}
process.exit(failed === 0 ? 0 : 1);
