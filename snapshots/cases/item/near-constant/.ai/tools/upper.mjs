export const __tool_description__ = "Makes text loud.";
export const __idempotant__ = true;
const __helper__ = 1;
export function execute(params) { return params.text.toUpperCase(); }
