// Loads the source of a tool as a module. What the tool prints joins the log.
import { writeSync } from "node:fs";
import * as modules from "node:module";
import { pathToFileURL } from "node:url";

const end = (message) => {
  process.stderr.write(`${message}\n`);
  process.exit(1);
};
process.stdout.write = process.stderr.write.bind(process.stderr);

/** Writes a text to the engine. */
const write = (text) => {
  let data = Buffer.from(text.toWellFormed ? text.toWellFormed() : text);
  while (data.length > 0) {
    data = data.subarray(writeSync(1, data));
  }
};

/** Registers the planned source of a tool. Returns the URL to import it from. */
const register = (given) => {
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
  return url;
};
