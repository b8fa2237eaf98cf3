// Node 20 has no `fs.globSync`, which the conformance package imports for a part of it that is not used here.
import * as fs from "node:fs";
import { register } from "node:module";

if (!fs.globSync) {
  const shim = `data:text/javascript,${encodeURIComponent('export * from "node:fs"; export const globSync = () => [];')}`;
  const hook = `export const resolve = (name, context, next) =>
    name === "fs" && /\\/conformance(-next)?\\/dist\\//.test(context.parentURL ?? "") ? { url: ${JSON.stringify(shim)}, shortCircuit: true } : next(name, context);`;
  register(`data:text/javascript,${encodeURIComponent(hook)}`);
}
