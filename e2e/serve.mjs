// Clients of `rye mcp serve --http` that work at the same time: no session waits for another one, a cancelled call ends, and the
// server ends at SIGTERM without an orphaned thread. Prints `ok` or `FAIL` for each scenario.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const RYE = process.argv[2];
const TIME_LIMIT_MS = 60_000;
/** The time that the slow directive takes, far above the bound for calls beside it. */
const SLOW_MS = 60_000;
const SOON_MS = 15_000;

const directive = (name, body) =>
  `# ${name}\n\n\`\`\`xml\n<directive name="${name}" version="1.0.0"><metadata><description>${name}</description>${body}<nudge>never</nudge></metadata></directive>\n\`\`\`\n\n${name}.\n`;

function project() {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "rye-serve-")));
  mkdirSync(join(root, ".home/.ai"), { recursive: true });
  mkdirSync(join(root, ".ai/directives"), { recursive: true });
  const model = '<model provider="scripted" tier="fast"/>';
  writeFileSync(join(root, ".ai/directives/slow.md"), directive("slow", model));
  writeFileSync(join(root, "script.yaml"), `steps:\n  - { delay_ms: ${SLOW_MS}, text: Done. }\n`);
  for (const n of [0, 1]) writeFileSync(join(root, `note${n}.txt`), `the note of client ${n}\n`);
  return root;
}

const inside = (root) => ({ cwd: root, env: { PATH: process.env.PATH, HOME: join(root, ".home"), NO_COLOR: "1" } });

function rye(root, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(RYE, args, { ...inside(root), stdio: ["ignore", "pipe", "inherit"] });
    let stdout = "";
    child.stdout.on("data", (d) => (stdout += d));
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout }));
  });
}

/** Starts a server; answers its address, the header with its token, and its process. */
function serve(root) {
  const child = spawn(RYE, ["mcp", "serve", "--http", "127.0.0.1:0"], { ...inside(root), stdio: ["ignore", "ignore", "pipe"] });
  return new Promise((resolve, reject) => {
    let said = "";
    child.on("close", () => reject(new Error(`ended: ${said}`)));
    child.stderr.on("data", (d) => {
      said += d;
      const url = said.match(/http:\/\/127\.0\.0\.1:\d+\/mcp/);
      const token = said.match(/Authorization: (Bearer \S+)\n/);
      if (url && token) resolve({ child, url: url[0], authorization: token[1] });
    });
  });
}

/** Opens a session; answers a function that sends a message and returns the response. */
async function connect({ url, authorization }) {
  let session = {};
  const send = async (message) => {
    const response = await fetch(url, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/json, text/event-stream", authorization, ...session },
      body: JSON.stringify({ jsonrpc: "2.0", ...message }),
      signal: AbortSignal.timeout(TIME_LIMIT_MS),
    });
    const id = response.headers.get("mcp-session-id");
    if (id) session = { "mcp-session-id": id };
    if (message.id === undefined) return undefined;
    let text = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const lines = text.split("\n").slice(0, -1).map((line) => line.replace(/^data: ?/, "")).filter((line) => line.startsWith("{"));
      const answer = lines.map((line) => JSON.parse(line)).find((answer) => answer.id === message.id);
      if (answer) return answer;
    }
    return undefined;
  };
  const clientInfo = { name: "e2e", version: "1" };
  await send({ id: 1, method: "initialize", params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo } });
  await send({ method: "notifications/initialized" });
  return send;
}

const call = (id, name, args) => ({ id, method: "tools/call", params: { name, arguments: args } });
const slow = (id) => call(id, "rye_execute", { item_type: "directive", item_id: "slow" });
const text = (answer) => answer.result.content.map((block) => block.text).join("\n");

async function statuses(root) {
  const listed = JSON.parse((await rye(root, ["threads", "list", "--format", "json"])).stdout);
  return Object.fromEntries(listed.threads.map((thread) => [thread.thread_id, thread.status]));
}

async function started(root) {
  for (let i = 0; i < 200; i++) {
    if (Object.keys(await statuses(root)).some((id) => id.startsWith("slow"))) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the directive did not start");
}

const SCENARIOS = {
  "two clients at once": async (root, server) => {
    const clients = await Promise.all([connect(server), connect(server)]);
    const running = clients[0](slow(2)).catch(() => undefined);
    await started(root);
    const since = Date.now();
    // Each client gets the text of its own file, many times at once, while the directive of the first one runs.
    for (let round = 0; round < 5; round++) {
      const read = (client, n) => client(call(10 + round, "rye_file_system_read", { path: `note${n}.txt` }));
      const answers = await Promise.all(clients.map(read));
      answers.forEach((answer, n) => {
        assert.ok(text(answer).includes(`the note of client ${n}`), text(answer));
        assert.ok(!text(answer).includes(`the note of client ${1 - n}`), text(answer));
      });
    }
    assert.ok(Date.now() - since < SOON_MS, `${Date.now() - since} ms`);
    await clients[0]({ method: "notifications/cancelled", params: { requestId: 2 } });
    const after = await clients[0](call(20, "rye_file_system_read", { path: "note0.txt" }));
    assert.ok(text(after).includes("the note of client 0"), text(after));
    await Promise.race([running, new Promise((resolve) => setTimeout(resolve, 1000))]);
  },
  "the end at SIGTERM": async (root, server) => {
    const client = await connect(server);
    client(slow(2)).catch(() => undefined);
    await started(root);
    const ended = new Promise((resolve) => server.child.on("exit", (code, signal) => resolve([code, signal])));
    const since = Date.now();
    server.child.kill("SIGTERM");
    assert.deepEqual(await ended, [0, null]);
    assert.ok(Date.now() - since < SOON_MS, `${Date.now() - since} ms`);
    const left = Object.entries(await statuses(root)).filter(([, status]) => !["completed", "cancelled", "killed"].includes(status));
    assert.deepEqual(left, []);
  },
};

let failed = 0;
for (const [name, scenario] of Object.entries(SCENARIOS)) {
  const root = project();
  assert.equal((await rye(root, ["trust"])).code, 0);
  const server = await serve(root);
  server.child.removeAllListeners("close");
  try {
    const running = scenario(root, server);
    await Promise.race([running, new Promise((_, reject) => setTimeout(() => reject(new Error("it took too long")), 2 * TIME_LIMIT_MS))]);
    console.log(`ok    serve: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  serve: ${name}\n${error.stack ?? error}`);
  } finally {
    const ended = server.child.exitCode ?? new Promise((resolve) => server.child.on("exit", resolve));
    server.child.kill("SIGKILL");
    await ended;
    rmSync(root, { recursive: true, force: true });
  }
}
console.log(`${Object.keys(SCENARIOS).length - failed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
