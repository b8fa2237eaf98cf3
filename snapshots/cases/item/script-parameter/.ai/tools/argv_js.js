export const __tool_description__ = "Counts the characters of a text.";
export const CONFIG_SCHEMA = { type: "object", required: ["text"], properties: { text: { type: "string" } } };

export function main() {
  console.log(process.argv[2].length);
}
