export const __tool_description__ = "Adds two flocks.";
export let __version__ = "1.0.0";
export const CONFIG_SCHEMA = { type: "object", properties: { ...flock } } as const;
export function execute(params: { a: number; b: number }): number { return params.a + params.b; }
