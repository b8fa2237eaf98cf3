export const __tool_description__ = "Joins two words.";
export const CONFIG_SCHEMA = { type: "object", properties: { first: { type: "string" }, second: { type: "string" } } };

export function execute({ first, secnd, by = " " }) {
  return first + by + secnd;
}
