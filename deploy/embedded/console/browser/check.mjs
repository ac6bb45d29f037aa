// Opens every page of the console of a demo in Chromium, light and wide, dark and narrow, and fails
// if a page has an error on its console, asks another host, paints late, is wider than the screen, or
// breaks a rule of accessibility. Then it presses the buttons of the demo, as a newcomer does, and
// watches a failover. Everything waits for conditions; the limits of time are those of the console.
import { chromium } from "playwright-core";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";

const [program, ...flags] = process.argv.slice(2);
const flag = (name) => (flags.includes(name) ? flags[flags.indexOf(name) + 1] : undefined);
const shots = flag("--shots");
const partitions = Number(flag("--partitions") ?? 0);

const firstPaint = 1000; // milliseconds
const toPartitions = 10_000; // from the start of the demo
const patience = 60_000;

const pages = ["", "nodes", "keyspaces", "partitions", "placement?why=n1", "transactions", "slow", "coordination",
  "backups", "events", "nothing-here"];
const failures = [];
const fail = (text) => {
  failures.push(text);
  console.error("FAIL " + text);
};

/** Fails if something took too long, unless others keep the machine busy: then it only says so. */
const late = (text) =>
  loadavg()[0] > 2 * availableParallelism()
    ? console.log(`not counted, the load of the machine is ${loadavg()[0].toFixed(0)}: ${text}`)
    : fail(text);

// ---- A browser, then a demo of its own

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox"] });

const dir = await mkdtemp(join(tmpdir(), "tidemark-console-"));
const began = Date.now();
const demo = spawn(resolve(program), ["demo", "--dir", dir, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
  { stdio: ["ignore", "pipe", "inherit"] });
let said = "";
const base = await new Promise((ready, failed) => {
  demo.stdout.on("data", (text) => {
    said += text;
    const found = said.match(/console on (http:\S+)\/\n/);
    if (found) ready(found[1]);
  });
  demo.on("exit", (code) => failed(new Error(`the demo ended with ${code}: ${said}`)));
});
const endpoint = said.match(/ready after .* on ([^,\s]+)/)?.[1];

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** Opens a context whose pages are watched. */
async function open(width, colorScheme) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme,
    reducedMotion: "reduce", bypassCSP: false });
  const page = await context.newPage();
  const of = () => page.url().replace(base, "") + ` at ${width}, ${colorScheme}`;
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && fail(`${of()}: the browser says: ${m.text()}`));
  page.on("pageerror", (e) => fail(`${of()}: ${e.message}`));
  page.on("request", (r) => !r.url().startsWith(base) && !r.url().startsWith("data:") && fail(`${of()}: asks ${r.url()}`));
  return page;
}

/** Waits until a page shows what it has asked for. */
async function settled(page) {
  await page.waitForSelector("main h1, main .notice", { timeout: patience });
  await page.waitForFunction(() => !document.querySelector("main [aria-busy]"), undefined, { timeout: patience });
}

async function check(page, path, width) {
  await page.goto(`${base}/console/${path}`);
  await settled(page);
  const name = `/${path} at ${width}`;
  let paint = await painted(page);
  if (paint > firstPaint) paint = await paintsLate(path, width);
  const over = await page.evaluate(() =>
    document.documentElement.scrollWidth - document.documentElement.clientWidth);
  if (over > 0) fail(`${name}: the page is ${over} pixels wider than the screen`);
  await accessible(page, name);
  return paint;
}

/** The time from the request of a page to its first paint, in milliseconds. */
async function painted(page) {
  const seen = await page.waitForFunction(() =>
    performance.getEntriesByName("first-contentful-paint")[0]?.startTime, undefined, { timeout: patience });
  return seen.jsonValue();
}

/**
 * Opens a page that was painted late again, and a plain text beside it, five times and with nothing
 * cached. Fails if the median is late too, unless the text takes half of that time: then the
 * machine is slow, and not the page.
 */
async function paintsLate(path, width) {
  const times = { [path]: [], "preact.licence.txt": [] };
  for (let i = 0; i < 5; i++) {
    for (const file of Object.keys(times)) {
      const context = await browser.newContext({ viewport: { width, height: 900 } });
      const page = await context.newPage();
      await page.goto(`${base}/console/${file}`);
      times[file].push(await painted(page));
      await context.close();
    }
  }
  const [paint, text] = Object.values(times).map((all) => Math.round(all.sort((a, b) => a - b)[2]));
  const said = `/${path} at ${width}: the first paint came after ${paint} ms, that of a text after ${text} ms`;
  if (paint > firstPaint && text < firstPaint / 2) fail(said);
  else console.log(said);
  return paint;
}

// axe runs in a world of its own, so that the policy of the page need not allow it.
async function accessible(page, name) {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  await session.send("Runtime.evaluate", { expression: axe, contextId: executionContextId });
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    expression: `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
      .then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.help + " " +
        v.nodes.slice(0, 3).map((n) => n.target.join(" ") + " " + (n.any[0]?.message ?? "")).join(" | "))))`,
    contextId: executionContextId, awaitPromise: true, returnByValue: true,
  });
  if (exceptionDetails) fail(`${name}: axe did not run: ${exceptionDetails.text}`);
  else for (const violation of JSON.parse(result.value)) fail(`${name}: ${violation}`);
  await session.detach();
}

async function shot(page, name) {
  if (!shots) return;
  await mkdir(shots, { recursive: true });
  await page.screenshot({ path: join(shots, name + ".png") });
}

try {
  // ---- From the start to live partitions
  const wide = await open(1280, "light");
  await wide.goto(base + "/");
  await settled(wide);
  await wide.getByRole("button", { name: "Start a load" }).click();
  await wide.getByRole("button", { name: "Stop the load" }).waitFor({ timeout: patience });
  await wide.goto(base + "/console/partitions");
  await wide.waitForSelector("main tbody tr", { timeout: patience });
  const took = Date.now() - began;
  console.log(`from the start of the demo to partitions in the browser: ${(took / 1000).toFixed(1)} s`);
  if (took > toPartitions) late(`partitions were shown after ${took} ms`);

  if (partitions > 0) {
    const made = spawn(resolve(program), ["keyspace", "create", "many", "--partitions", `hash:${partitions}`,
      "--replicas", "1", "--endpoints", endpoint, "--timeout", "5m"], { stdio: "inherit" });
    await new Promise((done) => made.on("exit", done));
    const from = Date.now();
    await wide.goto(base + "/console/partitions?keyspace=many");
    await wide.waitForFunction((n) => document.querySelector("main h2")?.textContent.startsWith(n),
      partitions.toLocaleString("en"), { timeout: patience });
    console.log(`a map of ${partitions} partitions: ${Date.now() - from} ms`);
    await shot(wide, "console-many");
  }

  // ---- Every page
  const narrow = await open(360, "dark");
  let latest = 0;
  for (const path of pages) {
    latest = Math.max(latest, await check(wide, path, 1280), await check(narrow, path, 360));
  }
  console.log(`the latest first paint: ${Math.round(latest)} ms`);

  // ---- By keyboard: to the page, along the heat map, into a partition
  await wide.goto(base + "/console/partitions?keyspace=demo");
  await wide.waitForSelector("canvas", { timeout: patience });
  await wide.keyboard.press("Tab");
  if ((await wide.evaluate(() => document.activeElement?.textContent)) !== "Skip to the page")
    fail("the first stop of the keyboard is not the link to the page");
  await wide.locator("canvas").focus();
  await wide.keyboard.press("ArrowDown");
  if (!/demo, /.test(await wide.locator(".spot").innerText())) fail("the heat map does not say what the keyboard points at");
  await wide.keyboard.press("Enter");
  await wide.waitForSelector("pre.why", { timeout: patience });

  // ---- Light and dark by the button
  await wide.getByRole("button", { name: /Colours/ }).click();
  await wide.waitForFunction(() => getComputedStyle(document.documentElement).colorScheme === "dark",
    undefined, { timeout: patience });
  await accessible(wide, "/placement, dark");
  await wide.getByRole("button", { name: /Colours/ }).click();

  // ---- A failover. Many partitions have one copy each, and stop with their node: not with those.
  if (partitions === 0) {
    await wide.goto(base + "/console/");
    // The only member of the core stays: without it nobody decides who takes over.
    const stop = wide.locator(".server").filter({ hasNotText: "core" })
      .getByRole("button", { name: /^stop n/ }).last();
    const name = (await stop.getAttribute("aria-label")).replace("stop ", "");
    await stop.click();
    await wide.waitForSelector(".verdict.warn, .verdict.bad", { timeout: patience });
    await wide.getByRole("button", { name: "restart " + name }).waitFor({ timeout: patience });
    await wide.getByText(/is down: \d+ replicas/).waitFor({ timeout: patience });
    await wide.waitForSelector(".verdict.warn", { timeout: patience }); // others lead by now
    await accessible(wide, "/ after a node has stopped");
    await shot(wide, "console-failover");
    await wide.getByRole("button", { name: "restart " + name }).click();
    await wide.waitForSelector(".verdict.good", { timeout: patience });
    const load = await wide.locator(".loadrow p").innerText();
    if (!/none failed/.test(load)) fail("while a node was stopped: " + load);
    console.log("a failover: " + load);
  }

  if (shots) {
    // The pictures of the documentation show some minutes of load.
    await wide.waitForTimeout(Number(flag("--minutes") ?? 3) * 60_000);
    for (const [path, file] of [["", "console-overview"], ["partitions", "console-partitions"], ["placement?why=n1", "console-placement"]]) {
      await wide.goto(`${base}/console/${path}`);
      await settled(wide);
      await wide.waitForTimeout(6000); // the charts have come
      await shot(wide, file);
    }
    await narrow.goto(base + "/console/partitions");
    await settled(narrow);
    await narrow.waitForTimeout(6000);
    await shot(narrow, "console-phone-dark");
  }
} catch (e) {
  fail(e.message);
} finally {
  await browser.close();
  const ended = new Promise((done) => demo.on("exit", done));
  demo.kill("SIGTERM");
  await ended;
  await rm(dir, { recursive: true, force: true });
}
console.log(failures.length ? `${failures.length} failures` : `all well after ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exit(failures.length ? 1 : 0);
