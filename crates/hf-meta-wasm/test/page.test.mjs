// The package and the page in Chromium: a static file server, and a Hub on another origin that allows CORS.
import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { extname } from "node:path";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { command, sorted, startHub } from "./support.mjs";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };
const EXPOSED = "X-Repo-Commit,X-Error-Code,X-Error-Message,Link,Content-Range,RateLimit,Retry-After";
/** A folder for pictures of all pages. */
const screenshots = process.env.SCREENSHOTS;
const VARIANTS = [[1280, "light"], [320, "dark"], ...(screenshots ? [[1280, "dark"], [390, "light"], [390, "dark"], [320, "light"]] : [])];
let hub;
let files;
let cors;
let browser;

function listen(handler) {
  return new Promise((resolve) => {
    const server = createServer(handler).listen(0, "127.0.0.1", () =>
      resolve({ url: `http://127.0.0.1:${server.address().port}`, stop: () => (server.closeAllConnections(), server.close()) }));
  });
}

before(async () => {
  hub = await startHub();
  files = await listen((request, response) => {
    const path = new URL(`../pkg${new URL(request.url, "http://x").pathname}`, import.meta.url);
    if (!existsSync(path)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(path.pathname)] ?? "text/plain" }).end(readFileSync(path));
  });
  // Follows redirects, as the origins of the Hub and its CDN both allow CORS.
  cors = await listen(async (request, response) => {
    const { range } = request.headers;
    const answer = await fetch(hub.hubUrl + request.url, { headers: { ...(range && { range }), "accept-encoding": "identity" } });
    const headers = Object.fromEntries([...answer.headers].filter(([name]) => !/encoding|connection/.test(name)));
    response.writeHead(answer.status, { ...headers, "access-control-allow-origin": "*", "access-control-expose-headers": EXPOSED });
    response.end(Buffer.from(await answer.arrayBuffer()));
  });
  const executablePath = ["/usr/bin/chromium", "/usr/bin/google-chrome"].find(existsSync);
  browser = await chromium.launch({ executablePath, args: FLAGS });
});
after(async () => {
  await browser?.close();
  for (const server of [hub, files, cors]) server?.stop();
});

/** Opens the page of a repository, and waits for its result or its error. */
async function visit(name, { width = 1280, hubUrl = cors.url } = {}) {
  const page = await browser.newPage({ viewport: { width, height: 900 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => /Content Security Policy/.test(message.text()) && errors.push(message.text()));
  await page.goto(`${files.url}/page/index.html?hub=${encodeURIComponent(hubUrl)}#${name}`);
  await page.waitForSelector("#result h2, .error");
  assert.deepEqual(errors, []);
  return page;
}

async function assertAccessible(page) {
  await page.evaluate(readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8"));
  const violations = await page.evaluate(async () => (await axe.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`));
  assert.deepEqual(violations, []);
}

test("Chromium has the documents of the command", { timeout: 300_000 }, async () => {
  const page = await browser.newPage();
  await page.goto(`${files.url}/page/index.html`);
  const found = await page.evaluate(async ([repos, hubUrl]) => {
    const { inspect } = await import("../esm/index.js");
    const one = (repo) => inspect(repo, { hubUrl }).catch(({ code }) => ({ error: code }));
    const documents = [];
    for (const repo of repos) documents.push(await one(repo));
    return documents;
  }, [hub.repos, cors.url]);
  const expected = await command(hub.hubUrl, "--json", "--no-cache", ...hub.repos);
  assert.deepEqual(hub.repos.filter((_, at) => expected[at].error
    ? expected[at].error.code !== found[at].error
    : sorted(expected[at]) !== sorted(found[at])), []);
  await page.close();
});

const PAGES = {
  sharded: ["bigscience/bloom", "176B parameters"],
  single: ["gpt2", "137M parameters"],
  quantized: ["unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "8.03B parameters"],
  moe: ["openai/gpt-oss-20b", "20.9B parameters"],
  gguf: ["example/Llama-3.2-1B-GGUF:Q4_K_M", "parameters"],
  choice: ["example/Tiny-GGUF", "severalSets"],
  pipeline: ["CompVis/stable-diffusion-v1-4", "weights 4.26 GB"],
  missing: ["org/none", "repoNotFound"],
};

for (const [kind, [name, text]] of Object.entries(PAGES)) {
  test(`the page of ${name}`, { timeout: 120_000 }, async () => {
    const page = await visit(name);
    assert.match(await page.textContent("main"), new RegExp(text.replace(".", "\\.")));
    const inEach = async (check) => {
      for (const [width, colorScheme] of VARIANTS) {
        await page.setViewportSize({ width, height: 900 });
        await page.emulateMedia({ colorScheme });
        await check(width, colorScheme);
      }
    };
    await inEach(async (width, colorScheme) => {
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(overflow <= 0, `${name} is ${overflow} px too wide at ${width} px`);
      if (screenshots) {
        mkdirSync(screenshots, { recursive: true });
        await page.screenshot({ path: `${screenshots}/${kind}-${width}-${colorScheme}.png`, fullPage: true });
      }
    });
    for (const summary of await page.$$("#result > details > summary")) await summary.click();
    await inEach(() => assertAccessible(page));
    await page.close();
  });
}

test("the form, the budget and links to a choice", { timeout: 60_000 }, async () => {
  const page = await visit("bigscience/bloom");
  await page.fill("#name", "https://huggingface.co/gpt2");
  await page.click("button");
  await page.waitForFunction(() => document.querySelector("#result h2")?.textContent === "gpt2");
  assert.match(page.url(), /#gpt2$/);
  await page.selectOption("#budget", "8GB");
  assert.match(await page.textContent("section:has(#budget)"), /weights 548 MB/);
  await page.close();
});

test("the page verifies a model", { timeout: 60_000 }, async () => {
  for (const [name, text] of Object.entries({ gpt2: /Valid: 1 of 1 weight files/, "CompVis/stable-diffusion-v1-4": /Not valid: 3 of 3.*`tokenizer`, whose files are missing/ })) {
    const page = await visit(name, { width: 390 });
    await page.click("text=Verify all files");
    await page.waitForSelector("text=/alid: /");
    assert.match(await page.textContent("section:has(button)"), text);
    await assertAccessible(page);
    if (screenshots) await page.screenshot({ path: `${screenshots}/verify-${name.replace("/", "-")}.png`, fullPage: true });
    await page.close();
  }
});

test("a server without CORS is a network error", { timeout: 60_000 }, async () => {
  const page = await visit("gpt2", { hubUrl: hub.hubUrl });
  assert.match(await page.textContent(".error"), /^network/);
  await page.close();
});
