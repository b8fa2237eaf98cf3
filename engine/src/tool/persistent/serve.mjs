// Runs one persistent tool. The first line of the input holds the planned source; each further line is a call. What the
// tool prints joins the log; what `execute` returns is the answer, one line of JSON.
import { writeSync } from "node:fs";
import * as modules from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const lines = createInterface({ input: process.stdin, crlfDelay: Infinity })[Symbol.asyncIterator]();
const first = await lines.next();
if (first.done) {
  process.exit(0);
}
const given = JSON.parse(first.value);
const end = (message) => {
  process.stderr.write(`${message}\n`);
  process.exit(1);
};
process.stdout.write = process.stderr.write.bind(process.stderr);

let source = given.source;
if (given.typescript) {
  if (!modules.stripTypeScriptTypes) {
    end(`TypeScript tools need node 22.13 or newer; this is ${process.version}`);
  }
  source = modules.stripTypeScriptTypes(source);
}
if (!modules.register) {
  end(`JavaScript tools need node 18.19, 20.6 or newer; this is ${process.version}`);
}
const url = pathToFileURL(given.path).href;
const hooks = `let held;
export async function initialize(data) { held = data; }
export async function load(url, context, next) {
  return url === held.url ? { format: "module", source: held.source, shortCircuit: true } : next(url, context);
}`;
modules.register(`data:text/javascript,${encodeURIComponent(hooks)}`, { data: { url, source } });

const write = (value) => {
  const text = `${JSON.stringify(value)}\n`;
  let data = Buffer.from(text.toWellFormed ? text.toWellFormed() : text);
  while (data.length > 0) {
    data = data.subarray(writeSync(1, data));
  }
};
globalThis.submit = (text, delivery = "prompt") => write({ submit: { text, delivery } });

const tool = await import(url);
const call = tool.execute ?? tool.default;
if (typeof call !== "function") {
  end("the tool does not export a function");
}
for (let line = await lines.next(); !line.done; line = await lines.next()) {
  const { id, facts } = JSON.parse(line.value);
  let answer;
  try {
    answer = { id, result: (await call(facts, given.project_path)) ?? null };
    JSON.stringify(answer);
  } catch (error) {
    console.error(error);
    answer = { id, error: String(error) };
  }
  write(answer);
}
process.exit(0);
