// `rye check --format sarif` against the validator of the format: the schema of SARIF 2.1.0, its rules, and the rules of code scanning. The projects are
// the case folders, whose faults together have almost every code. Prints `ok` or `FAIL` for each check.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";

const RYE = process.argv[2];
const CASES = new URL("../snapshots/cases/", import.meta.url).pathname;
const VALIDATOR = new URL("node_modules/@microsoft/sarif-multitool-linux/", import.meta.url).pathname;
/** Limits of code scanning. */
const MAX_RESULTS = 25_000;
const MAX_GZIP_BYTES = 10 * 1024 * 1024;
/** Number of codes that the case folders report at least. */
const MIN_CODES = 110;

const root = realpathSync(mkdtempSync(join(tmpdir(), "rye-sarif-")));
const logs = join(root, "logs");
for (const folder of [logs, join(root, "home/.ai")]) mkdirSync(folder, { recursive: true });

/** Checks a project and returns its log. */
function check(project, name) {
  const env = { PATH: process.env.PATH, HOME: join(root, "home") };
  const done = spawnSync(RYE, ["check", "--format", "sarif"], { cwd: project, env, encoding: "utf8", maxBuffer: 1 << 28 });
  assert.ok(done.status === 0 || done.status === 1, `${name}: ${done.stderr}`);
  writeFileSync(join(logs, `${name}.sarif`), done.stdout);
  return done.stdout;
}

function checkLimits(text, name) {
  const { runs } = JSON.parse(text);
  assert.equal(runs.length, 1);
  const [{ results, tool }] = runs;
  assert.ok(results.length <= MAX_RESULTS, `${name}: ${results.length} results`);
  assert.ok(gzipSync(text).length <= MAX_GZIP_BYTES, `${name}: too large`);
  const fingerprints = results.map((result) => result.partialFingerprints["ryeDiagnostic/v1"]);
  assert.equal(new Set(fingerprints).size, fingerprints.length, `${name}: equal fingerprints`);
  for (const result of results) {
    const [place] = result.locations;
    assert.ok(place.physicalLocation.artifactLocation.uri.length > 0 && place.physicalLocation.region.startLine > 0, name);
    assert.equal(tool.driver.rules[result.ruleIndex].id, result.ruleId);
  }
  for (const rule of tool.driver.rules) {
    assert.ok(rule.id.length <= 255 && rule.name.length <= 255 && rule.properties.tags.length <= 10, rule.id);
    for (const text of [rule.shortDescription.text, rule.fullDescription.text]) assert.ok(text.length > 0 && text.length <= 1024, rule.id);
  }
  return tool.driver.rules.map((rule) => rule.id);
}

const steps = {
  "logs of the case folders are within the limits of code scanning"() {
    const codes = new Set();
    for (const topic of readdirSync(CASES)) {
      for (const name of readdirSync(join(CASES, topic))) {
        if (!existsSync(join(CASES, topic, name, ".ai"))) continue;
        const project = join(root, "projects", topic, name);
        cpSync(join(CASES, topic, name), project, { recursive: true, verbatimSymlinks: true });
        checkLimits(check(project, `${topic}-${name}`), `${topic}/${name}`).forEach((code) => codes.add(code));
      }
    }
    assert.ok(codes.size >= MIN_CODES, `only ${codes.size} codes`);
  },
  "a log of 30,000 faults is within the limits of code scanning"() {
    const project = join(root, "projects/large");
    mkdirSync(join(project, ".ai/directives"), { recursive: true });
    const lines = Array.from({ length: 100 }, (_, n) => `Read {input:missing_${n}}.`).join("\n");
    for (let n = 0; n < 300; n += 1) {
      const head = `# D\n\n\`\`\`xml\n<directive name="d${n}" version="1.0.0"></directive>\n\`\`\`\n\n`;
      writeFileSync(join(project, `.ai/directives/d${n}.md`), head + lines);
    }
    const text = check(project, "large");
    checkLimits(text, "large");
    const [run] = JSON.parse(text).runs;
    assert.equal(run.results.length, MAX_RESULTS);
    assert.match(run.invocations[0].toolExecutionNotifications[0].message.text, /omitted results: 5000/);
  },
  "the validator finds no error"() {
    const program = join(VALIDATOR, "Sarif.Multitool");
    chmodSync(program, 0o755);
    const report = join(root, "report.sarif");
    const args = ["validate", join(logs, "*.sarif"), "--json-schema", join(VALIDATOR, "sarif-2.1.0.json"), "--rule-kind", "Sarif;Ghas"];
    const done = spawnSync(program, [...args, "--output", report, "--log", "ForceOverwrite"], { encoding: "utf8", maxBuffer: 1 << 28 });
    assert.ok(existsSync(report), done.stdout + done.stderr);
    const [run] = JSON.parse(readFileSync(report, "utf8").replace(/^\uFEFF/, "")).runs;
    const errors = run.results.filter((result) => (result.level ?? "warning") === "error");
    assert.deepEqual(errors.map((error) => [error.ruleId, error.message.text ?? error.message.arguments]), []);
  },
};

if (process.platform !== "linux") {
  console.log("ok sarif: skipped, because the validator is installed for Linux only");
  process.exit(0);
}
let failed = 0;
for (const [name, step] of Object.entries(steps)) {
  try {
    step();
    console.log(`ok sarif: ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL sarif: ${name}\n${error.stack}`);
  }
}
rmSync(root, { recursive: true, force: true });
process.exit(failed === 0 ? 0 : 1);
