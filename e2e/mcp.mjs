// MCP against servers and a client that we did not write: server-everything over stdio and HTTP, server-filesystem, and the
// inspector's command line. Prints one line a scenario and `N passed, N failed` at the end.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const RYE = process.argv[2];
const HERE = dirname(fileURLToPath(import.meta.url));
const bin = (name) => join(HERE, "node_modules/.bin", name);
const TIME_LIMIT_MS = 120_000;

/** Where a server's own code lies, which its wall has to let it read. */
const needs = { read: [join(HERE, "node_modules")] };

function project(servers, directive, script) {
  const root = realpathSync(mkdtempSync(join(tmpdir(), "rye-mcp-")));
  mkdirSync(join(root, ".ai/directives"), { recursive: true });
  mkdirSync(join(root, ".home/.ai"), { recursive: true });
  writeFileSync(join(root, ".mcp.json"), JSON.stringify({ mcpServers: servers(root) }));
  writeFileSync(join(root, "note.txt"), "the note\n");
  writeFileSync(
    join(root, ".ai/directives/task.md"),
    `# Task\n\n\`\`\`xml\n<directive name="task" version="1.0.0"><metadata><permissions><execute>${directive}</execute></permissions>` +
      `<nudge>never</nudge></metadata></directive>\n\`\`\`\n\nDo it.\n`,
  );
  writeFileSync(join(root, "script.yaml"), script(root));
  return root;
}

function run(root, program, args, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: root,
      env: { PATH: process.env.PATH, HOME: join(root, ".home"), NO_COLOR: "1", ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (d) => (stdout += d));
    child.stderr.on("data", (d) => (stderr += d));
    const timer = setTimeout(() => child.kill("SIGKILL"), TIME_LIMIT_MS);
    child.on("error", reject);
    child.on("close", (code) => {
      clearTimeout(timer);
      resolve({ code, stdout, stderr });
    });
  });
}

async function fine(root, args) {
  const done = await run(root, RYE, args);
  assert.equal(done.code, 0, `${args.join(" ")}\n${done.stdout}\n${done.stderr}`);
  return done.stdout;
}

/** Trusts the server, lists, trusts the tools, runs; answers the events of the run. */
async function called(root, server, wanted) {
  const refused = await run(root, RYE, ["mcp", "refresh", server]);
  assert.equal(refused.code, 5, refused.stderr);
  await fine(root, ["trust"]);
  const made = await fine(root, ["mcp", "refresh", server]);
  for (const id of wanted) assert.match(made, new RegExp(`^\\+ mcp/${server}/${id}$`, "m"));
  await fine(root, ["check"]);
  await fine(root, ["trust"]);
  return fine(root, ["run", "task", "--script", "script.yaml", "--events", "--format", "json"]);
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function answers(port) {
  for (let i = 0; i < 100; i++) {
    const up = await fetch(`http://127.0.0.1:${port}/mcp`).then(() => true, () => false);
    if (up) return;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error("the server did not start");
}

const EVERYTHING = (server) =>
  `steps:\n  - tool_calls: [{ name: mcp_${server}_echo, input: { message: hello } }]\n` +
  `  - tool_calls: [{ name: mcp_${server}_get-sum, input: { a: 2, b: 40 } }]\n  - done\n`;

const SCENARIOS = {
  "server-everything over stdio": async () => {
    const root = project(
      () => ({ every: { command: "node", args: [bin("mcp-server-everything"), "stdio"], needs } }),
      "<tool>mcp.every.echo</tool><tool>mcp.every.get-sum</tool>",
      () => EVERYTHING("every").replaceAll("get-sum", "get_sum"),
    );
    const events = await called(root, "every", ["echo", "get-sum"]);
    assert.match(events, /Echo: hello/);
    assert.match(events, /sum of 2 and 40 is 42/);
    return root;
  },
  "server-everything over HTTP": async () => {
    const port = await freePort();
    const server = spawn("node", [bin("mcp-server-everything"), "streamableHttp"], {
      env: { ...process.env, PORT: String(port) },
      stdio: "ignore",
    });
    try {
      await answers(port);
      const root = project(
        () => ({ net: { type: "http", url: `http://127.0.0.1:${port}/mcp` } }),
        '<tool net="127.0.0.1">mcp.net.echo</tool><tool net="127.0.0.1">mcp.net.get-sum</tool>',
        () => EVERYTHING("net").replaceAll("get-sum", "get_sum"),
      );
      const events = await called(root, "net", ["echo", "get-sum"]);
      assert.match(events, /Echo: hello/);
      assert.match(events, /sum of 2 and 40 is 42/);
      return root;
    } finally {
      server.kill();
    }
  },
  "server-filesystem over stdio": async () => {
    const root = project(
      (root) => ({ files: { command: "node", args: [bin("mcp-server-filesystem"), root, "/etc"], needs } }),
      "<tool>mcp.files.read_text_file</tool><tool>mcp.files.write_file</tool>",
      (root) =>
        "steps:\n" +
        `  - tool_calls: [{ name: mcp_files_read_text_file, input: { path: ${JSON.stringify(join(root, "note.txt"))} } }]\n` +
        "  - tool_calls: [{ name: mcp_files_read_text_file, input: { path: /usr/lib/os-release } }]\n" +
        "  - tool_calls: [{ name: mcp_files_read_text_file, input: { path: /etc/shadow } }]\n" +
        `  - tool_calls: [{ name: mcp_files_write_file, input: { path: ${JSON.stringify(join(root, "new.txt"))}, content: x } }]\n  - done\n`,
    );
    const events = await called(root, "files", ["read_text_file", "write_file"]);
    assert.match(events, /the note/);
    // A call that the server refuses, and one that its sandbox prevents.
    assert.match(events, /Access denied/);
    assert.equal(events.match(/EACCES: permission denied/g)?.length, 2, events);
    assert.ok(!existsSync(join(root, "new.txt")));
    return root;
  },
  "schemas of the reference servers on every wire": async () => {
    const node = (name, ...args) => ({ command: "node", args: [bin(`mcp-server-${name}`), ...args], needs });
    const servers = { every: node("everything", "stdio"), files: node("filesystem", "."), memory: node("memory"), thinking: node("sequential-thinking") };
    const root = project(
      () => servers,
      "<tool>mcp.*</tool>",
      () => "steps: [done]\n",
    );
    await fine(root, ["trust"]);
    for (const server of Object.keys(servers)) await fine(root, ["mcp", "refresh", server]);
    const checked = await run(root, RYE, ["check", "--format", "plain"]);
    assert.equal(checked.code, 0, checked.stdout);
    // The server `everything` has one tool that runs only as a task, which rye does not start.
    const items = checked.stdout.match(/^.*item::.*$/gm)?.filter((line) => !line.startsWith("for more")) ?? [];
    assert.equal(items.length, 1, checked.stdout);
    assert.match(items[0], /item::server-schema\]: the tool `mcp\/every\/simulate-research-query` cannot be called/);
    const task = readFileSync(join(root, ".ai/directives/task.md"), "utf8");
    let seen = 0;
    for (const server of Object.keys(servers)) {
      // All tools of one server fit into the palette.
      writeFileSync(join(root, ".ai/directives/task.md"), task.replace("mcp.*", `mcp.${server}.*`));
      for (const model of ["anthropic/general", "openai/general", "openai-responses/general", "gemini/general"]) {
        const plan = JSON.parse(await fine(root, ["plan", "task", "--model", model, "--format", "json"]));
        const tools = plan.palette.filter((tool) => tool.id.startsWith(`mcp/${server}/`));
        assert.deepEqual(plan.dropped_tools, [], `${server} ${model}`);
        seen += tools.length;
        for (const { name, sent, schema } of tools) {
          const parameters = sent === null ? schema : sent.parameters;
          if (parameters === null || parameters === undefined) continue;
          assert.equal(parameters.type, "object", `${model} ${name}: ${JSON.stringify(sent)}`);
          assert.ok(!/"(\$ref|allOf|oneOf)":/.test(JSON.stringify(parameters)) || !model.startsWith("gemini"), `${name}: ${JSON.stringify(sent)}`);
        }
      }
    }
    assert.ok(seen >= 4 * 35, `${seen} definitions`);
    return root;
  },
  "the inspector against rye mcp serve": async () => {
    const root = project(() => ({}), "<tool>rye.file-system.read</tool>", () => "steps: [done]\n");
    const inspect = (...args) =>
      run(root, "node", [bin("mcp-inspector"), "--cli", RYE, "mcp", "serve", "--project", root, ...args]);
    const listed = await inspect("--method", "tools/list");
    assert.equal(listed.code, 0, listed.stderr);
    const names = JSON.parse(listed.stdout).tools.map((tool) => tool.name);
    assert.ok(names.includes("rye_fetch") && names.includes("rye_execute"), listed.stdout);
    const call = (name, ...args) =>
      inspect("--method", "tools/call", "--tool-name", name, ...args.flatMap((arg) => ["--tool-arg", arg]));
    const read = await call("rye_file_system_read", "path=note.txt");
    assert.match(JSON.parse(read.stdout).content[0].text, /the note/);
    const denied = await call("rye_execute", "item_type=tool", "item_id=rye/bash/bash");
    const result = JSON.parse(denied.stdout);
    assert.ok(result.isError && /missing capability/.test(result.content[0].text), denied.stdout);
    return root;
  },
};

let failed = 0;
for (const [name, scenario] of Object.entries(SCENARIOS)) {
  try {
    rmSync(await scenario(), { recursive: true, force: true });
    console.log(`ok    ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n${error.stack ?? error}`);
  }
}
console.log(`${Object.keys(SCENARIOS).length - failed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
