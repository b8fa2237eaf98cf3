import { createRequire } from "node:module";
export const __tool_description__ = "Reads a package.";

const require = createRequire(import.meta.url);
const fs = require("node:fs"); // not `__dirname`

export function execute() {
  return { fs: typeof fs, text: "require('x')" };
}
