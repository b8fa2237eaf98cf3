// Runs one call of a tool. The result of the function is the answer, as JSON.
import { readFileSync } from "node:fs";
import { Readable } from "node:stream";

const given = JSON.parse(readFileSync(0, "utf8"));
const tool = await import(register(given));
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
write(text);
process.exit(0);
