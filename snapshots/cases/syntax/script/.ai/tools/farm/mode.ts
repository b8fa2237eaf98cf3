export const __tool_description__ = "Names a mode.";

export enum Mode { Fast, Slow }

export const execute = () => Mode[0];
