export const __tool_description__ = "Reads a file.";

const fs = require("node:fs");

export function execute(params, projectPath) {
  return fs.readdirSync(projectPath);
}
