// Runs one persistent tool. The first line of the input holds the planned source; each further line is a call. The
// result of `execute` is the answer, one line of JSON.
import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin, crlfDelay: Infinity })[Symbol.asyncIterator]();
const first = await lines.next();
if (first.done) {
  process.exit(0);
}
const given = JSON.parse(first.value);
const url = register(given);
const writeLine = (value) => write(`${JSON.stringify(value)}\n`);
globalThis.submit = (text, delivery = "prompt") => writeLine({ submit: { text, delivery } });

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
  writeLine(answer);
}
process.exit(0);
