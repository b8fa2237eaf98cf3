export const __tool_description__ = "Counts the characters of a text.";
export const CONFIG_SCHEMA = { type: "object", required: ["text"], properties: { text: { type: "string" } } };

export default (params) => { count: params.text.length };
