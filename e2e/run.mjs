// Scenarios on all four wires. Each makes a project of its own, starts `rye run` and looks at the result, at what the server
// was sent and at the transcript. Prints one line a scenario and `N passed, N failed` at the end.
import { LLMock } from "@copilotkit/aimock";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createServer, request } from "node:http";
import { mkdtempSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const RYE = process.argv[2];
const TIME_LIMIT_MS = 120_000;

const WIRES = {
  anthropic: {
    env: (url) => ({ ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: "test-key" }),
    model: '<model provider="anthropic" tier="fast"/>',
  },
  "openai-chat": {
    env: (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: "test-key" }),
    model: '<model provider="openai" tier="fast"/>',
  },
  "openai-responses": {
    env: (url) => ({ OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: "test-key" }),
    model: '<model provider="openai-responses" tier="fast"/>',
  },
  gemini: {
    env: (url) => ({ GEMINI_BASE_URL: url, GEMINI_API_KEY: "test-key" }),
    model: '<model provider="gemini" tier="fast"/>',
  },
};

function project(wire, { limits = 'turns="5"', outputs = "" } = {}) {
  const root = mkdtempSync(join(tmpdir(), "rye-e2e-"));
  mkdirSync(join(root, ".ai/directives"), { recursive: true });
  for (let i = 0; i < 60; i++) writeFileSync(join(root, `note-${i}.txt`), `note number ${i}\n`);
  writeFileSync(
    join(root, ".ai/directives/task.md"),
    [
      "# Task",
      "",
      "```xml",
      '<directive name="task" version="1.0.0">',
      "  <metadata>",
      "    <description>Read some notes.</description>",
      `    ${WIRES[wire].model}`,
      `    <limits ${limits}/>`,
      "    <permissions><execute><tool>rye.file-system.read</tool></execute></permissions>",
      "    <nudge>never</nudge>",
      "  </metadata>",
      outputs,
      "</directive>",
      "```",
      "",
      "Read the notes and say what they hold.",
      "",
    ].join("\n"),
  );
  return root;
}

function rye(root, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(RYE, [...args, "--project", root], {
      env: { PATH: process.env.PATH, HOME: root, NO_COLOR: "1", ...env },
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

const lastJson = (text) => JSON.parse(text.trim().split("\n").at(-1));

function transcript(root, threadId) {
  const file = join(root, ".ai/state/threads", threadId, "transcript.jsonl");
  return readFileSync(file, "utf8").trim().split("\n").map((line) => JSON.parse(line));
}

// Replies so far: the Responses wire sends each call of a reply as an item of its own, and the mock makes a message of it.
const assistants = (req) =>
  req.messages.filter((m, i) => m.role === "assistant" && req.messages[i - 1]?.role !== "assistant").length;
const results = (req) => req.messages.filter((m) => m.role === "tool");
const call = (i, id) => ({ id, name: "rye_file_system_read", arguments: JSON.stringify({ path: `note-${i}.txt` }) });
const any = { predicate: () => true };
const USAGE = { input_tokens: 100, output_tokens: 20, prompt_tokens: 100, completion_tokens: 20 };

// The Responses API says it by a part of the message, which the mock never sends: this one does, as the API is published.
async function refusedInItsOwnWords() {
  const wire = "openai-responses";
  const part = { type: "refusal", refusal: "I will not." };
  const item = { id: "msg_1", type: "message", role: "assistant", status: "completed", content: [part] };
  const at = { item_id: "msg_1", output_index: 0, content_index: 0 };
  const response = { id: "resp_1", object: "response", model: "gpt-test-1", output: [] };
  const usage = { input_tokens: 100, output_tokens: 20, total_tokens: 120 };
  const events = [
    { type: "response.created", response: { ...response, status: "in_progress" } },
    { type: "response.output_item.added", output_index: 0, item: { ...item, status: "in_progress", content: [] } },
    { type: "response.content_part.added", ...at, part: { ...part, refusal: "" } },
    { type: "response.refusal.delta", ...at, delta: "I will " },
    { type: "response.refusal.delta", ...at, delta: "not." },
    { type: "response.refusal.done", ...at, refusal: "I will not." },
    { type: "response.output_item.done", output_index: 0, item },
    { type: "response.completed", response: { ...response, status: "completed", output: [item], usage } },
  ];
  let asked = 0;
  const server = createServer((request, answer) => {
    request.resume();
    asked += 1;
    answer.writeHead(200, { "content-type": "text/event-stream" });
    events.forEach((event, n) => answer.write(`event: ${event.type}\ndata: ${JSON.stringify({ ...event, sequence_number: n })}\n\n`));
    answer.end();
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  try {
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(`http://127.0.0.1:${server.address().port}`));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 1, run.stdout + run.stderr);
    assert.deepEqual([result.status, result.error.code, result.error.message], ["error", "refused", "I will not."]);
    assert.deepEqual([result.cost.turns, asked], [1, 1]);
    return root;
  } finally {
    server.close();
  }
}

const scenarios = {
  async text(mock, wire) {
    mock.addFixture({ match: any, response: { content: "Nothing to report.", usage: USAGE } });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.status, "completed");
    assert.equal(result.result, "Nothing to report.");
    assert.equal(result.cost.turns, 1);
    assert.equal(result.cost.output_tokens, 20);
    return root;
  },

  async "tool loop of 50 turns"(mock, wire) {
    const seen = [];
    mock.addFixture({
      match: any,
      response: (req) => {
        const n = assistants(req);
        seen.push(results(req).map((m) => JSON.stringify(m.content)));
        if (n >= 50) return { content: "All fifty read.", usage: USAGE };
        return { toolCalls: [call(n, `call_${n}`)], usage: USAGE };
      },
    });
    const root = project(wire, { limits: 'turns="60" tokens="2000000" spend="5"' });
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.result, "All fifty read.");
    assert.equal(result.cost.turns, 51);
    assert.equal(seen.at(-1).length, 50);
    for (let i = 0; i < 50; i++) assert.match(seen.at(-1)[i], new RegExp(`note number ${i}\\b`));
    return root;
  },

  async "parallel tool calls"(mock, wire) {
    let answered;
    mock.addFixture({
      match: any,
      response: (req) => {
        if (assistants(req) === 0) return { toolCalls: [call(1, "call_a"), call(2, "call_b"), call(3, "call_c")], usage: USAGE };
        answered = results(req);
        return { content: "Three read.", usage: USAGE };
      },
    });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.result, "Three read.");
    assert.deepEqual(answered.map((m) => m.tool_call_id), ["call_a", "call_b", "call_c"]);
    [1, 2, 3].forEach((n, i) => assert.match(JSON.stringify(answered[i].content), new RegExp(`note number ${n}\\b`)));
    return root;
  },

  async "429 with retry-after"(mock, wire) {
    let attempts = 0;
    let first;
    let second;
    mock.addFixture({
      match: any,
      response: () => {
        attempts += 1;
        if (attempts === 1) {
          first = Date.now();
          return { error: { message: "slow down", type: "rate_limit_error" }, status: 429, retryAfter: 1 };
        }
        second = Date.now();
        return { content: "Thanks for waiting.", usage: USAGE };
      },
    });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(attempts, 2);
    assert.ok(second - first >= 950, `waited only ${second - first} ms`);
    assert.equal(result.result, "Thanks for waiting.");
    assert.equal(result.cost.turns, 1);
    const failed = transcript(root, result.thread_id).filter((e) => e.type === "attempt_failed");
    assert.equal(failed.length, 1);
    return root;
  },

  async "529 overloaded"(mock, wire) {
    let attempts = 0;
    mock.addFixture({
      match: any,
      response: () => {
        attempts += 1;
        if (attempts === 1) return { error: { message: "overloaded", type: "overloaded_error" }, status: 529 };
        return { content: "Back again.", usage: USAGE };
      },
    });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(attempts, 2);
    assert.equal(result.result, "Back again.");
    return root;
  },

  async "stream cut in the middle"(mock, wire) {
    let attempts = 0;
    const text = "A long answer that is cut. ".repeat(20);
    mock.addFixture({
      match: { predicate: () => attempts++ === 0 },
      response: { content: text, usage: USAGE },
      chunkSize: 10,
      truncateAfterChunks: 4,
    });
    mock.addFixture({ match: any, response: { content: "Whole this time.", usage: USAGE } });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.result, "Whole this time.");
    const events = transcript(root, result.thread_id);
    assert.equal(events.filter((e) => e.type === "attempt_failed").length, 1);
    assert.ok(!JSON.stringify(events.filter((e) => e.type === "cognition_out")).includes("A long answer"));
    return root;
  },

  async "structured outputs"(mock, wire) {
    mock.addFixture({
      match: any,
      response: (req) => {
        const n = assistants(req);
        const args = n === 0 ? { count: 3 } : { count: 3, word: "" };
        return { toolCalls: [{ id: `ret_${n}`, name: "rye_directive_return", arguments: JSON.stringify(args) }], usage: USAGE };
      },
    });
    const outputs =
      '<outputs><output name="count" type="integer" required="true">how many</output>' +
      '<output name="word" type="string" required="true">a word, may be empty</output></outputs>';
    const root = project(wire, { outputs });
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.deepEqual(result.outputs, { count: 3, word: "" });
    assert.equal(result.cost.turns, 2);
    return root;
  },

  async "turn limit keeps the partial result"(mock, wire) {
    mock.addFixture({
      match: any,
      response: (req) => ({ content: "Still reading.", toolCalls: [call(assistants(req), `c_${assistants(req)}`)], usage: USAGE }),
    });
    const root = project(wire, { limits: 'turns="3"' });
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 4, run.stderr);
    assert.equal(result.status, "error");
    assert.equal(result.cost.turns, 3);
    assert.match(JSON.stringify(result.error), /turns_exceeded/);
    return root;
  },

  async "reasoning goes back with its call"(mock, wire) {
    const sent = [];
    mock.addFixture({
      match: any,
      response: (req) => {
        sent.push(req);
        const thought = { reasoning: "First look, then speak.", reasoningSignature: "c2lnbmF0dXJl", usage: USAGE };
        if (assistants(req) === 0) return { ...thought, toolCalls: [call(1, "call_1")] };
        return { ...thought, content: "Seen." };
      },
    });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.result, "Seen.");
    assert.equal(sent.length, 2);
    const replies = transcript(root, result.thread_id).filter((e) => e.type === "cognition_out");
    const blocks = replies.flatMap((e) => e.content);
    const thoughts = blocks.filter((b) => b.type === "thinking").map((b) => b.text);
    assert.deepEqual(thoughts, ["First look, then speak.", "First look, then speak."]);
    if (wire === "openai-responses") assert.ok(blocks.some((b) => b.type === "other" && b.value.encrypted_content));
    return root;
  },

  async "output limit inside a call"(mock, wire) {
    let told;
    mock.addFixture({
      match: any,
      response: (req) => {
        if (assistants(req) === 0) return { toolCalls: [call(1, "call_1")], finishReason: "length", usage: USAGE };
        told = JSON.stringify(results(req).map((m) => m.content));
        return { content: "Shorter now.", usage: USAGE };
      },
    });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.result, "Shorter now.");
    assert.match(told, /output limit inside this call/);
    return root;
  },

  async "a refusal is its own end"(mock, wire) {
    if (wire === "openai-responses") return refusedInItsOwnWords();
    const finishReason = wire === "anthropic" ? "refusal" : "content_filter";
    mock.addFixture({ match: any, response: { content: "I will not.", finishReason, usage: USAGE } });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 1, run.stdout + run.stderr);
    assert.deepEqual([result.status, result.error.code, result.cost.turns], ["error", "refused", 1]);
    return root;
  },

  async "an image"(mock, wire) {
    const png = Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "latin1"), Buffer.from([0, 0, 0, 6, 0, 0, 0, 4, 8, 6, 0, 0, 0])]);
    mock.addFixture({ match: any, response: { content: "A field.", usage: USAGE } });
    const root = project(wire);
    writeFileSync(join(root, "field.png"), png);
    // The mock forgets images where it reads a wire, so what it is sent is looked at on the way.
    const sent = [];
    const between = createServer((incoming, answer) => {
      const chunks = [];
      incoming.on("data", (chunk) => chunks.push(chunk));
      incoming.on("end", () => {
        sent.push(Buffer.concat(chunks).toString());
        const { method, headers } = incoming;
        const onward = request(new URL(incoming.url, mock.url), { method, headers }, (from) => {
          answer.writeHead(from.statusCode, from.headers);
          from.pipe(answer);
        });
        onward.end(sent.at(-1));
      });
    });
    await new Promise((ready) => between.listen(0, "127.0.0.1", ready));
    const args = ["run", "task", "--image", join(root, "field.png"), "--format", "json"];
    const run = await rye(root, args, WIRES[wire].env(`http://127.0.0.1:${between.address().port}`));
    between.close();
    const result = lastJson(run.stdout);
    assert.equal(run.code, 0, run.stderr);
    assert.equal(result.result, "A field.");
    assert.equal(sent.length, 1);
    assert.ok(sent[0].includes(png.toString("base64")), "no image was sent");
    assert.ok(!JSON.stringify(transcript(root, result.thread_id)).includes(png.toString("base64")));
    return root;
  },

  async "an answer that is no stream"(mock, wire) {
    mock.addFixture({ match: any, response: { content: "never" }, chaos: { malformedRate: 1 } });
    const root = project(wire);
    const run = await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url));
    const result = lastJson(run.stdout);
    assert.equal(run.code, 1, run.stdout + run.stderr);
    assert.deepEqual([result.status, result.result, result.cost.turns], ["error", null, 0]);
    assert.match(result.error.message, /answered with `application\/json`, not with a stream/);
    return root;
  },

  async "providers test"(mock, wire) {
    mock.addFixture({ match: any, response: { content: "ready", usage: USAGE } });
    const root = project(wire);
    const id = WIRES[wire].model.match(/provider="([^"]+)"/)[1];
    const run = await rye(root, ["providers", "test", id, "--format", "json"], WIRES[wire].env(mock.url));
    assert.equal(run.code, 0, run.stdout + run.stderr);
    const told = lastJson(run.stdout);
    assert.deepEqual([told.ok, told.text, told.output_tokens], [true, "ready", 20]);
    assert.ok(!run.stdout.includes("test-key"));
    return root;
  },

  async "a recorded thread plays again"(mock, wire) {
    mock.addFixture({
      match: any,
      response: (req) => (assistants(req) === 0 ? { toolCalls: [call(1, "call_1")], usage: USAGE } : { content: "Read.", usage: USAGE }),
    });
    const root = project(wire);
    const first = lastJson((await rye(root, ["run", "task", "--format", "json"], WIRES[wire].env(mock.url))).stdout);
    const script = join(root, "script.json");
    const exported = await rye(root, ["threads", "export", first.thread_id, "--script", "-o", script], WIRES[wire].env(""));
    assert.equal(exported.code, 0, exported.stderr);
    assert.ok(!readFileSync(script, "utf8").includes("test-key"));
    const again = await rye(root, ["run", "task", "--script", script, "--format", "json"], {});
    assert.equal(again.code, 0, again.stdout + again.stderr);
    assert.deepEqual(lastJson(again.stdout).cost.spend, first.cost.spend);
    return root;
  },
};

let passed = 0;
let failed = 0;
for (const wire of Object.keys(WIRES)) {
  for (const [name, scenario] of Object.entries(scenarios)) {
    const mock = new LLMock({ port: 0, host: "127.0.0.1", logLevel: "silent" });
    await mock.start();
    try {
      const root = await scenario(mock, wire);
      rmSync(root, { recursive: true, force: true });
      passed += 1;
      console.log(`ok    ${wire}: ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${wire}: ${name}\n      ${String(error.message).replaceAll("\n", "\n      ")}`);
    } finally {
      await mock.stop();
    }
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
