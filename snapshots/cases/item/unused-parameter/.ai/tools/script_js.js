export const __tool_description__ = "Repeats a text.";
export const CONFIG_SCHEMA = { type: "object", properties: { text: { type: "string" }, separator: { type: "string" } } };

export function execute({ text = "" }) {
  return text + text;
}
