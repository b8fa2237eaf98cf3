export const __tool_description__ = "Counts words.";
export const CONFIG_SCHEMA = { type: "object", properties: { text: { type: "string" } } };

export function execute(params, projectPath) {
  const { text, limit = 100 } = params;
  return Math.min(text.split(" ").length, limit);
}
