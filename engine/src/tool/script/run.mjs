// Runs one tool: the source that was planned, as a module at its own place. What it prints joins the log; what it
// returns is the answer, as JSON.
import { readFileSync, writeSync } from "node:fs";
import * as modules from "node:module";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";

const given = JSON.parse(readFileSync(0, "utf8"));
const end = (message) => {
  process.stderr.write(`${message}\n`);
  process.exit(1);
};
const toLog = process.stderr.write.bind(process.stderr);
process.stdout.write = toLog;

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

const tool = await import(url);
const call = given.entry === "execute" ? (tool.execute ?? tool.default) : tool.main;
if (typeof call !== "function") {
  end("the tool does not export a function");
}
const printed = [];
if (given.entry === "main") {
  const stdin = Readable.from([JSON.stringify(given.params)]);
  Object.defineProperty(process, "stdin", { value: stdin });
  process.stdout.write = (chunk, encoding, done) => {
    printed.push(typeof chunk === "string" ? chunk : Buffer.from(chunk).toString("utf8"));
    (typeof encoding === "function" ? encoding : done)?.();
    return true;
  };
}
const result = await call(given.params, given.project_path);
const text = printed.length > 0 && result === undefined ? printed.join("") : JSON.stringify(result ?? null);
if (text === undefined) {
  end("the result of the tool is not JSON");
}
let data = Buffer.from(text.toWellFormed ? text.toWellFormed() : text);
while (data.length > 0) {
  data = data.subarray(writeSync(1, data));
}
process.exit(0);
