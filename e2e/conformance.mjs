// The official conformance scenarios of MCP: `rye mcp serve --http` as the server, and rye as a client of the scenarios' own
// servers. `conformance.mjs RYE` runs all; `conformance.mjs client RYE SCENARIO URL` is what a client scenario starts.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer, request } from "node:http";
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const SELF = fileURLToPath(import.meta.url);
const HERE = dirname(SELF);
/** The stable release of the scenarios, and the newest pre-release. */
const PACKAGES = [
  ["stable", join(HERE, "node_modules/@modelcontextprotocol/conformance/dist/index.js")],
  ["next", join(HERE, "node_modules/conformance-next/dist/index.js")],
];
const TIME_LIMIT_MS = 60_000;

const SERVER = ["server-initialize", "ping", "tools-list", "tools-call-error", "server-sse-multiple-streams", "dns-rebinding-protection"];
const CLIENT = ["initialize", "tools_call", "sse-retry"];

/** The error of the tool of the server scenarios. */
const FAILS = "this tool always fails";

/** The tool and the arguments that a client scenario expects in a call. */
const CALLS = { tools_call: ["add_numbers", "{ a: 5, b: 3 }"], "sse-retry": ["test_reconnection", "{}"] };

function directive(name, grants) {
  return (
    `# Task\n\n\`\`\`xml\n<directive name="${name}" version="1.0.0"><metadata><permissions><execute>${grants}</execute>` +
    `<acknowledge risk="unrestricted">a scenario</acknowledge></permissions><nudge>never</nudge></metadata></directive>\n\`\`\`\n\nDo it.\n`
  );
}

function project(files) {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "rye-conformance-")));
  mkdirSync(join(root, ".home/.ai"), { recursive: true });
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

const inside = (root) => ({ cwd: root, env: { PATH: process.env.PATH, HOME: join(root, ".home"), NO_COLOR: "1" } });

function done(program, args, options) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { ...options, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (d) => (said += d));
    const timer = setTimeout(() => child.kill("SIGKILL"), TIME_LIMIT_MS);
    child.on("error", reject);
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code, said });
    });
  });
}

/** Connects to a scenario's server and calls what it wants. */
async function client(rye, scenario, url) {
  const call = CALLS[scenario];
  const steps = call ? `  - tool_calls: [{ name: mcp_scenario_${call[0]}, input: ${call[1]} }]\n` : "";
  const root = project({
    ".mcp.json": JSON.stringify({ mcpServers: { scenario: { type: "http", url } } }),
    ".ai/directives/task.md": directive("task", '<tool net="localhost">mcp.scenario.*</tool>'),
    "script.yaml": `steps:\n${steps}  - done\n`,
  });
  const commands = [["trust"], ["mcp", "refresh"], ["trust"], ["run", "task", "--script", "script.yaml", "--events"]];
  for (const args of call ? commands : commands.slice(0, 2)) {
    const { code, said } = await done(rye, args, inside(root));
    console.log(`rye ${args.join(" ")}: ${code}\n${said}`);
    assert.equal(code, 0, args.join(" "));
  }
  rmSync(root, { recursive: true, force: true });
}

/** `rye mcp serve` at a port of its own; answers its address and how to end it. */
async function serve(rye) {
  const root = project({
    ".ai/directives/face.md": directive("face", "<tool>test_error_handling</tool>"),
    ".ai/tools/test_error_handling.sh": `#!/bin/bash\n# rye: {description: Fails., parameters: {}}\necho ${FAILS}\nexit 1\n`,
  });
  const trusted = await done(rye, ["trust"], inside(root));
  assert.equal(trusted.code, 0, trusted.said);
  const args = ["mcp", "serve", "--directive", "face", "--http", "127.0.0.1:0"];
  const child = spawn(rye, args, { ...inside(root), stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  const [port, authorization] = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no address: ${said}`)), TIME_LIMIT_MS);
    child.on("close", () => reject(new Error(`ended: ${said}`)));
    child.stderr.on("data", (d) => {
      said += d;
      const found = said.match(/http:\/\/127\.0\.0\.1:(\d+)\/mcp\s+Authorization: (Bearer \S+)\n/);
      if (found) {
        clearTimeout(timer);
        resolve(found.slice(1));
      }
    });
  });
  const proxy = await authorize(port, authorization);
  const end = async () => {
    proxy.close();
    proxy.closeAllConnections();
    // The server ends its sessions first, which writes below the project.
    const ended = new Promise((resolve) => child.on("exit", resolve));
    child.kill();
    await ended;
    rmSync(root, { recursive: true, force: true });
  };
  return { url: `http://127.0.0.1:${proxy.address().port}/mcp`, end };
}

/** A proxy that adds the token, which the scenarios cannot send. Every other header goes through, with the server's port. */
function authorize(port, authorization) {
  const proxy = createServer((incoming, answer) => {
    const own = `:${proxy.address().port}`;
    const headers = Object.fromEntries(Object.entries(incoming.headers).map(([name, value]) => [name, String(value).replaceAll(own, `:${port}`)]));
    const { method, url: path } = incoming;
    const onward = request({ host: "127.0.0.1", port, method, path, headers: { ...headers, authorization } }, (from) => {
      answer.writeHead(from.statusCode, from.headers);
      from.pipe(answer);
    });
    onward.on("error", () => answer.destroy());
    answer.on("close", () => onward.destroy());
    incoming.pipe(onward);
  });
  return new Promise((resolve) => proxy.listen(0, "127.0.0.1", () => resolve(proxy)));
}

/** Sends one message to a server. Returns its session and its answer. */
async function post(url, session, message) {
  const headers = { "content-type": "application/json", accept: "application/json, text/event-stream", ...session };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify({ jsonrpc: "2.0", ...message }), signal: AbortSignal.timeout(TIME_LIMIT_MS) });
  const id = response.headers.get("mcp-session-id");
  if (message.id === undefined) return { id };
  let text = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const answers = text.split("\n").slice(0, -1).map((line) => line.replace(/^data: ?/, "")).filter((line) => line.startsWith("{"));
    const answer = answers.map((line) => JSON.parse(line)).find((answer) => answer.id === message.id);
    if (answer) return { id, answer };
  }
  throw new Error(`no answer: ${text}`);
}

/** The scenario accepts any error; a refusal by rye is one too, so the tool's own words are compared. */
async function failsInItsOwnWords(url) {
  const client = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "e2e", version: "1" } };
  const { id } = await post(url, {}, { id: 1, method: "initialize", params: client });
  const session = { "mcp-session-id": id, "mcp-protocol-version": client.protocolVersion };
  await post(url, session, { method: "notifications/initialized" });
  const { answer } = await post(url, session, { id: 2, method: "tools/call", params: { name: "test_error_handling", arguments: {} } });
  assert.equal(answer.result?.isError, true, JSON.stringify(answer));
  const text = answer.result.content.map((block) => block.text).join("\n");
  assert.ok(text.includes(FAILS), text);
  assert.ok(!text.includes("rye trust"), text);
}

/** Runs one scenario, and judges its checks ourselves: every one has to succeed. */
async function scenario(program, name, args) {
  const where = mkdtempSync(join(tmpdir(), "rye-conformance-results-"));
  const node = ["--import", join(HERE, "globless.mjs"), program, ...args, "--scenario", name, "--output-dir", where];
  const { said } = await done(process.execPath, node, { cwd: where });
  const files = readdirSync(where, { recursive: true }).filter((file) => file.endsWith("checks.json"));
  assert.equal(files.length, 1, said);
  const checks = JSON.parse(readFileSync(join(where, files[0]), "utf8")).filter((check) => check.status !== "INFO");
  assert.ok(checks.length > 0, `no check was made\n${said}`);
  // A busy machine may be late by a little, which the scenario itself only warns of.
  const late = (check) => check.id === "client-sse-retry-timing" && check.status === "WARNING";
  const bad = checks.filter((check) => check.status !== "SUCCESS" && !late(check));
  assert.deepEqual(bad, [], `${JSON.stringify(bad, null, 1)}\n${said}`);
  rmSync(where, { recursive: true, force: true });
}

if (process.argv[2] === "client") {
  await client(process.argv[3], process.argv[4], process.argv[5]);
} else {
  const rye = process.argv[2];
  let failed = 0;
  let passed = 0;
  for (const [release, program] of PACKAGES) {
    const judge = async (name, args, more = async () => {}) => {
      try {
        await scenario(program, name, args);
        await more();
        passed += 1;
        console.log(`ok    ${name} (${release})`);
      } catch (error) {
        failed += 1;
        console.log(`FAIL  ${name} (${release})\n${error.stack ?? error}`);
      }
    };
    for (const name of release === "next" ? [...SERVER, "server-session-lifecycle"] : SERVER) {
      const { url, end } = await serve(rye);
      await judge(name, ["server", "--url", url], async () => name === "tools-call-error" && failsInItsOwnWords(url));
      await end();
    }
    for (const name of CLIENT) await judge(name, ["client", "--command", `${process.execPath} ${SELF} client ${rye} ${name}`]);
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed === 0 ? 0 : 1);
}
