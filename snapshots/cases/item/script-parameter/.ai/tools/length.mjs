export const __tool_description__ = "Counts the characters of a text.";
export const CONFIG_SCHEMA = { type: "object", properties: { text: { type: "string" } } };

export default async (text) => text.length;
