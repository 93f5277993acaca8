// The dashboard in a real browser: every page opened and looked at, every action done, with a script and without.
//
//     node tests/browser/run.mjs HARNESS MODULES CHROMIUM
//
// MODULES is the folder with playwright-core and axe-core. Of each page, at two widths and in both colour schemes: it is
// not empty, nothing is wider than the window, axe-core finds nothing, and the browser reports neither an error nor
// anything that the page's policy refused.

import { spawn, execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const [harness, modules, executablePath] = process.argv.slice(2);
const require = createRequire(join(resolve(modules), "x.js"));
const { chromium } = require("playwright-core");
const axe = require("axe-core").source;

const WIDTHS = [390, 1280];
const SCHEMES = ["light", "dark"];
const folder = mkdtempSync(join(tmpdir(), "harness-browser-"));
const failures = [];
let checks = 0;

function check(holds, what) {
  checks += 1;
  if (!holds) {
    failures.push(what);
    console.log(`FAILED: ${what}`);
  }
}

// A project whose tool waits for a person, and one that is refused.
function project(at) {
  const files = {
    "harness.md": "---\nmodel: { provider: script, script: replies.yaml }\nsandbox: { fs: { read: [docs], write: [] } }\n---\nYou help.\n",
    "tools/asks.md": "---\nconfirm: true\nparameters:\n  text: { type: string }\nscript: |\n  def run(args):\n      return args[\"text\"]\n---\nSays it.\n",
    "tools/reads.md": "---\nparameters:\n  path: { type: string }\nscript: |\n  def run(args):\n      return fs.read(args[\"path\"])\n---\nReads.\n",
    "plugins/acme/plugin.md": "---\nname: acme\nversion: 1.0.0\ndescription: Reads documents.\nlicense: MIT\nasks:\n  - reason: to read them\n    fs: { read: [docs] }\n---\nProse.\n",
    "plugins/acme/tools/peek.md": "---\nscript: |\n  def run(args):\n      return 1\n---\nPeeks.\n",
  };
  for (const [path, text] of Object.entries(files)) {
    const file = join(at, ".harness", path);
    mkdirSync(join(file, ".."), { recursive: true });
    writeFileSync(file, text);
  }
  const long = "A sentence of some words that has to be broken into lines. ".repeat(8);
  const word = "w".repeat(300);
  writeFileSync(join(at, "replies.yaml"), `- tool_calls: [{ name: reads, args: { path: docs/a.txt } }]\n- text: ${JSON.stringify(`${long}${word}`)}\n`);
}

const server = spawn(resolve(harness), ["serve", "--data", "data", "--demo", "--listen", "127.0.0.1:0", "--operator-dashboard", "127.0.0.1:0"], { cwd: folder });
let out = "";
let said = "";
server.stdout.on("data", (data) => (out += data));
server.stderr.on("data", (data) => (said += data));
const ended = new Promise((_, reject) => server.on("exit", (code) => reject(new Error(`the server has ended with ${code}: ${said}`))));
ended.catch(() => {});

async function until(find) {
  for (;;) {
    const found = find();
    if (found) {
      return found;
    }
    await Promise.race([new Promise((done) => setTimeout(done, 20)), ended]);
  }
}

const admin = (...args) => execFileSync(resolve(harness), ["admin", ...args, "--data", "data"], { cwd: folder, encoding: "utf8" });
const keyOf = (text) => text.match(/hk_[0-9a-f]{16}_[0-9a-f]{64}/)[0];

async function api(url, key, method, path, body, headers = {}) {
  const answer = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json", ...headers },
    body: body && JSON.stringify(body),
  });
  return { status: answer.status, json: await answer.json() };
}

// A page that notes what the browser reports.
async function open(browser, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) {
      check(false, `${page.url()}: the browser reports ${message.text()}`);
    }
  });
  page.on("pageerror", (error) => check(false, `${page.url()}: the script fails: ${error}`));
  return page;
}

async function signIn(page, url, key) {
  await page.goto(`${url}/dashboard/sign-in`);
  await page.fill("#key", key);
  await Promise.all([page.waitForURL(`${url}/dashboard`), page.click("main button")]);
}

// Everything that holds of a page however it is looked at.
async function look(page, path, name, canvas) {
  for (const width of WIDTHS) {
    for (const colorScheme of SCHEMES) {
      await page.setViewportSize({ width, height: 800 });
      await page.emulateMedia({ colorScheme });
      const answer = await page.goto(path);
      const at = `${name} at ${width} px, ${colorScheme}`;
      check(answer.status() === 200, `${at}: the answer is ${answer.status()}`);
      // What can be unfolded is looked at as well.
      await page.evaluate(() => document.querySelectorAll("details").forEach((one) => one.setAttribute("open", "")));
      const size = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      check(size[0] <= size[1], `${at}: it is ${size[0]} px wide in a window of ${size[1]}`);
      const picture = (await page.screenshot({ fullPage: true })).toString("base64");
      const { colours, ground } = await canvas.evaluate(async (picture) => {
        const image = new Image();
        image.src = `data:image/png;base64,${picture}`;
        await image.decode();
        const surface = new OffscreenCanvas(image.width, image.height).getContext("2d");
        surface.drawImage(image, 0, 0);
        const counts = new Map();
        const pixels = new Uint32Array(surface.getImageData(0, 0, image.width, image.height).data.buffer);
        for (const pixel of pixels) {
          counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
        }
        return { colours: counts.size, ground: Math.max(...counts.values()) / pixels.length };
      }, picture);
      check(colours > 20 && ground < 0.999, `${at}: the picture is empty: ${colours} colours, ${ground} of it one`);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => axe.run());
      for (const { id, nodes } of violations) {
        check(false, `${at}: axe finds ${id} at ${nodes.map((one) => one.target.join(" ")).slice(0, 3).join(", ")}: ${nodes[0].failureSummary}`);
      }
      checks += 1;
    }
  }
}

async function main() {
  const url = (await until(() => out.match(/^http:\S+$/m)))[0];
  const link = (await until(() => said.match(/signs in once within 10 minutes: (\S+)/)))[1];
  const operators = (await until(() => said.match(/operator's dashboard: (\S+)\/dashboard/)))[1];
  project(join(folder, "lab"));
  admin("tenant", "add", "lab", "--from", "lab");
  const [owner, other, caller, approver] = ["owner", "owner", "caller", "approver"].map((role) => keyOf(admin("key", "add", "lab", "--role", role, "--label", role)));
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox"] });
  const canvas = await (await browser.newContext()).newPage();

  // The link of the demo: a button, once.
  const demo = await open(browser);
  await demo.goto(link);
  await Promise.all([demo.waitForURL(`${url}/dashboard`), demo.click("main button")]);
  check((await demo.textContent(".who")).includes("acme as owner"), "the link signs in as the owner of acme");
  await Promise.all([demo.waitForURL(`${url}/dashboard/sign-in`), demo.click(".who button")]);
  await look(demo, `${url}/dashboard/sign-in`, "the way in", canvas);
  const again = await browser.newContext().then((context) => context.newPage());
  check((await again.goto(link)).status() === 404, "the link works once");

  const waits = async () => {
    const begun = await api(url, caller, "POST", "/v1/tools/asks/calls", { arguments: { text: "x".repeat(200) } }, { Prefer: "respond-async" });
    for (;;) {
      const open = (await api(url, approver, "GET", "/v1/approvals")).json.approvals;
      const one = open.find((one) => one.run === begun.json.id);
      if (one) {
        return one;
      }
    }
  };

  const page = await open(browser);
  await signIn(page, url, owner);

  // What has ended: a turn, and a call that was refused.
  const turn = (await api(url, owner, "POST", "/v1/runs", { input: "read it" })).json.id;
  for (let state = "running"; state === "running"; ) {
    state = (await api(url, owner, "GET", `/v1/runs/${turn}`)).json.state;
  }
  await api(url, owner, "POST", "/v1/tools/reads/calls", { arguments: { path: "notes/a.txt" } });

  // A question that is answered with a button.
  const first = await waits();
  await look(page, `${url}/dashboard/approvals`, "approvals", canvas);
  await page.goto(`${url}/dashboard/approvals`);
  await Promise.all([page.waitForURL(`${url}/dashboard/runs/${first.run}`), page.click("text=Run it with these arguments")]);
  await page.waitForSelector("#live .badge:text('completed')");
  check(true, "a call is approved");

  // One whose page shows the end when it comes, by itself.
  const second = await waits();
  await page.goto(`${url}/dashboard/runs/${second.run}`);
  await page.waitForSelector("#live .badge:text('running')");
  await page.evaluate(() => (window.same = true));
  await api(url, other, "POST", `/v1/approvals/${second.id}`, { answer: "no", args_digest: second.args_digest });
  await page.waitForSelector("#live .badge:text('denied')");
  check(await page.evaluate(() => window.same === true), "the page of a run is updated without being loaded again");

  // One that is stopped with a button, and one that waits while its page is looked at.
  const third = await waits();
  await page.goto(`${url}/dashboard/runs/${third.run}`);
  await page.click("text=Stop this run");
  await page.waitForSelector("#live .badge:text('stopped')");
  check((await api(url, owner, "GET", `/v1/runs/${third.run}`)).json.state === "stopped", "a run is stopped");
  const fourth = await waits();

  // A refusal, and a dry run of the line that would lift it.
  await page.goto(`${url}/dashboard/audit`);
  await page.selectOption("select[name=outcome]", "denied");
  await page.fill("input[name=tool]", "reads");
  await Promise.all([page.waitForURL(/outcome=denied/), page.click("text=Search")]);
  const refused = `${url}${await page.getAttribute("tbody tr:first-child a", "href")}`;
  await page.goto(refused);
  await page.click("text=Show what this would allow");
  check((await page.textContent("main")).includes("reading `notes/a.txt`"), "a line of policy is tried");
  check(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "the dry run fits");

  // Keys and secrets.
  await page.goto(`${url}/dashboard/keys`);
  await page.fill("#label", "browser");
  await page.click("text=Make a key >> nth=-1");
  const made = keyOf(await page.textContent("[role=status]"));
  check((await api(url, made, "GET", "/v1/tools")).status === 200, "a key is made");
  await page.click("[aria-label='Remove the key browser']");
  await page.waitForURL(`${url}/dashboard/keys`);
  check((await api(url, made, "GET", "/v1/tools")).status === 401, "a key is removed");
  await page.goto(`${url}/dashboard/secrets`);
  await page.fill("#name", "TOKEN");
  await page.fill("#value", "s3cret-value");
  await page.click("form.card button");
  await page.waitForSelector("code:text-is('TOKEN')");
  await look(page, `${url}/dashboard/secrets`, "secrets", canvas);
  await page.click("[aria-label='Remove the secret TOKEN']");
  await page.waitForSelector("text=There are none.");
  check((await api(url, owner, "GET", "/v1/secrets")).json.secrets.length === 0, "a secret is set and removed");

  for (const [path, name] of [
    ["/dashboard", "the overview"],
    ["/dashboard/runs", "runs"],
    ["/dashboard/runs?state=failed", "no runs"],
    [`/dashboard/runs/${turn}`, "a turn"],
    [`/dashboard/runs/${fourth.run}`, "a run that waits"],
    ["/dashboard/audit", "the audit log"],
    ["/dashboard/project", "plugins and tools"],
    ["/dashboard/keys", "keys"],
  ]) {
    await look(page, url + path, name, canvas);
  }
  await look(page, refused, "a refusal", canvas);

  // The operator.
  const boss = await open(browser);
  await signIn(boss, operators, execFileSync("cat", [join(folder, "data", "admin.key")], { encoding: "utf8" }).trim());
  for (const [path, name] of [
    ["/dashboard", "tenants"],
    ["/dashboard/tenants/lab", "a tenant"],
    ["/dashboard/neighbours", "neighbours"],
  ]) {
    await look(boss, operators + path, name, canvas);
  }

  // Without a script everything can be done too.
  const plain = await open(browser, { javaScriptEnabled: false });
  await signIn(plain, url, approver);
  await plain.goto(`${url}/dashboard/approvals`);
  await plain.click("text=Do not run it");
  await plain.waitForURL(`${url}/dashboard/runs/${fourth.run}`);
  for (let state = "running"; state === "running"; ) {
    state = (await api(url, owner, "GET", `/v1/runs/${fourth.run}`)).json.state;
  }
  await plain.goto(`${url}/dashboard/runs/${fourth.run}`);
  check((await plain.textContent("main")).includes("denied"), "a call is refused without a script");
  await plain.click(".who button");
  await plain.waitForURL(`${url}/dashboard/sign-in`);

  // A page of another site can neither show these pages nor send their forms.
  const evil = await browser.newContext({ storageState: await page.context().storageState() }).then((context) => context.newPage());
  await evil.setContent(`<iframe src="${url}/dashboard"></iframe>`);
  const frame = evil.frames()[1];
  check(!frame || !(await frame.content().catch(() => "")).includes("Overview"), "no other site shows a page in a frame");
  await evil.setContent(`<form method="post" action="${url}/dashboard/sign-out"><button>x</button></form>`);
  await evil.click("button");
  await evil.waitForURL(/dashboard/);
  await page.goto(`${url}/dashboard`);
  check(page.url() === `${url}/dashboard`, "no other site signs anyone out");

  await browser.close();
}

try {
  await Promise.race([main(), ended]);
} catch (error) {
  failures.push(String(error));
  console.log(`FAILED: ${error.stack ?? error}`);
} finally {
  server.removeAllListeners("exit");
  server.kill();
  rmSync(folder, { recursive: true, force: true });
}
console.log(`the dashboard in a browser: ${checks} checks, ${failures.length} failed`);
process.exit(failures.length === 0 ? 0 : 1);
