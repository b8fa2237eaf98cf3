export const __tool_description__ = "Counts the characters of a text.";
export const CONFIG_SCHEMA = { type: "object", required: ["text"], properties: { text: { type: "string" } } };

export const execute = async (params: { text: string }) => {
  console.log("counting");
  return { count: params.text.length };
};
