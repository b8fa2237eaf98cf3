import { join } from "node:path";
export const __tool_description__ = "Names a folder.";

export default async () => {
  const folder = join(__dirname, "data");
  return { folder };
};
