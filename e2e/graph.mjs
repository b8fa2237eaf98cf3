// `rye graph --to html` in headless Chromium: the image of 200 items is readable, and the page of 2,000 items finds each of them. Prints `ok` or `FAIL`
// for each check.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const RYE = process.argv[2];
const FOLDERS = ["build", "data", "docs", "ml", "ops", "release", "review", "support", "triage", "web"];
const VIEWPORT = { width: 1440, height: 900 };
/** Smallest readable height of a line of text, in pixels. */
const MIN_TEXT_HEIGHT = 11;

const root = realpathSync(mkdtempSync(join(tmpdir(), "rye-graph-")));
const folder = (n) => FOLDERS[n % FOLDERS.length];

/** Writes a project with this number of items: directives that start each other, knowledge and tools. */
function project(items) {
  const place = join(root, `items-${items}`);
  const write = (path, text) => {
    mkdirSync(dirname(join(place, path)), { recursive: true });
    writeFileSync(join(place, path), text);
  };
  const [directives, knowledge, tools] = [items * 0.6, items * 0.25, items * 0.15];
  for (let n = 0; n < directives; n += 1) {
    const child = 2 * n + 1;
    const starts = child < directives ? `<directive>${folder(child)}.d${child}</directive>` : "";
    const grants = `<execute><tool>${folder(n % tools)}.t${n % tools}</tool>${starts}</execute>`;
    const context = `<context><before>${folder(n % knowledge)}/k${n % knowledge}</before></context>`;
    const metadata = `<metadata><description>Part ${n}.</description>${context}<permissions>${grants}</permissions></metadata>`;
    write(`.ai/directives/${folder(n)}/d${n}.md`, `# D\n\n\`\`\`xml\n<directive name="d${n}" version="1.0.0">${metadata}</directive>\n\`\`\`\n\nWork on ${n}.\n`);
  }
  for (let n = 0; n < knowledge; n += 1) write(`.ai/knowledge/${folder(n)}/k${n}.md`, `---\nname: k${n}\n---\nRule ${n}.\n`);
  for (let n = 0; n < tools; n += 1) write(`.ai/tools/${folder(n)}/t${n}.sh`, `#!/bin/bash\n# rye: {description: Tool ${n}.}\ntrue\n`);
  const env = { PATH: process.env.PATH, HOME: join(root, "home") };
  const graph = (...args) => execFileSync(RYE, ["graph", ...args], { cwd: place, env, encoding: "utf8", maxBuffer: 1 << 28 });
  writeFileSync(join(place, "graph.html"), graph("--to", "html"));
  return { page: pathToFileURL(join(place, "graph.html")).href, nodes: JSON.parse(graph("--format", "json")).nodes.length };
}

/** Returns the sizes of the image, and the rectangles of the texts in boxes and on edges. */
const measure = () => {
  const rectangle = (element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return { left, right, top, bottom, text: element.textContent };
  };
  const image = document.querySelector("svg");
  const { width, height } = image.getBoundingClientRect();
  const all = (selector) => [...image.querySelectorAll(selector)].map(rectangle);
  return { width, height, boxes: all("text:not(.word)"), labels: all("text.word") };
};

const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

const steps = {
  async "the image of 200 items is readable"(browser) {
    const { page: address } = project(200);
    const page = await browser.newPage();
    await page.setViewport(VIEWPORT);
    await page.goto(address);
    const { width, height, boxes, labels } = await page.evaluate(measure);
    // The image scrolls in its box: at most two screens wide and four high.
    assert.ok(width <= 2 * VIEWPORT.width && height <= 4 * VIEWPORT.height, `${width} × ${height}`);
    assert.ok(boxes.length >= 10 && boxes.length <= 80, `${boxes.length} boxes`);
    for (const box of boxes) assert.ok(box.bottom - box.top >= MIN_TEXT_HEIGHT, box.text);
    for (const [n, box] of boxes.entries()) {
      const hidden = [...boxes.slice(n + 1), ...labels].find((other) => overlap(box, other));
      assert.equal(hidden, undefined, `${box.text} overlaps ${hidden?.text}`);
    }
    const scroll = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(scroll <= VIEWPORT.width, `the page is ${scroll} pixels wide`);
  },
  async "the page of 2,000 items finds each of them"(browser) {
    const { page: address, nodes } = project(2000);
    const page = await browser.newPage();
    await page.setViewport(VIEWPORT);
    await page.goto(address);
    const state = () =>
      page.evaluate(() => ({
        shown: [...document.querySelectorAll("article:not([hidden]) h3")].filter((title) => title.closest("details").open).map((title) => title.textContent),
        found: document.getElementById("found").textContent,
      }));
    assert.deepEqual((await state()).shown, [], "folders are closed at first");
    await page.type("#find", "directive docs/d1162");
    const one = await state();
    assert.ok(one.shown.length >= 1 && one.shown.length <= 5 && one.shown.some((title) => title.includes("docs/d1162")), JSON.stringify(one));
    assert.equal(one.found, `${one.shown.length} of ${nodes}`);
    await page.$eval("#find", (field) => {
      field.value = "";
      field.dispatchEvent(new Event("input"));
    });
    await page.type("#find", "no-such-item");
    assert.deepEqual(await state(), { shown: [], found: `0 of ${nodes}` });
    const target = await page.evaluate(() => {
      const last = [...document.querySelectorAll("article")].at(-1);
      document.getElementById("find").value = "";
      document.getElementById("find").dispatchEvent(new Event("input"));
      location.hash = `#${last.id}`;
      return last.id;
    });
    await page.waitForFunction((id) => document.getElementById(id).closest("details").open, {}, target);
  },
};

if (process.platform !== "linux" || process.arch !== "x64") {
  console.log("ok graph: skipped, because the browser is installed for Linux on x64 only");
  process.exit(0);
}
const { default: chromium } = await import("@sparticuz/chromium");
const { default: puppeteer } = await import("puppeteer-core");
const browser = await puppeteer.launch({ args: chromium.args, executablePath: await chromium.executablePath(), headless: "shell" });
let failed = 0;
for (const [name, step] of Object.entries(steps)) {
  try {
    await step(browser);
    console.log(`ok graph: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL graph: ${name}\n${error.stack}`);
  }
}
await browser.close();
rmSync(root, { recursive: true, force: true });
process.exit(failed === 0 ? 0 : 1);
