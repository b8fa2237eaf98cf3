export const __tool_description__ = "Adds two flocks.";
export function execute(params) { return params.a + ; }
