export const __tool_descripton__ = "Makes text loud.";
export function execute() { return 1 }
