// The package and the page in Chromium: a static file server, and a Hub on another origin that allows CORS.
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { deflateSync } from "node:zlib";
import { after, before, test } from "node:test";
import { chromium } from "playwright-core";

import { GOOD, command, file, sorted, startHub, startService } from "./support.mjs";

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

test("the form, and links to a choice", { timeout: 60_000 }, async () => {
  const page = await visit("bigscience/bloom");
  await page.fill("#name", "https://huggingface.co/gpt2/tree/main?x=1");
  await page.click("button:has-text('Inspect')");
  await page.waitForFunction(() => document.querySelector("#result h2")?.textContent === "gpt2@main");
  assert.match(page.url(), /#gpt2@main$/);
  await page.fill("#name", "example/Tiny-GGUF");
  await page.keyboard.press("Enter");
  await page.click(".error a");
  await page.waitForSelector("#result h2");
  assert.match(page.url(), /#hf:\/\/example\/Tiny-GGUF@main\/.+\.gguf$/);
  await page.close();
});

test("the memory has fields for the GPU, the context and the engine", { timeout: 60_000 }, async () => {
  const page = await visit("openai/gpt-oss-20b");
  const text = () => page.textContent("section:has(#budget)");
  await page.fill("#budget", "16 GB");
  const [fits, plain] = [await text(), await page.textContent("svg text:last-child")];
  assert.match(fits, /It does not fit at 131,072 tokens; at most [\d,]+ tokens fit/);
  await page.fill("#context", "8k");
  assert.match(await text(), /It fits at 8,192 tokens/);
  assert.equal(await page.textContent("svg text:last-child"), plain, "the chart shows all contexts");
  assert.ok(await page.isDisabled("#gpus"));
  await page.selectOption("#engine", "vllm");
  await page.fill("#gpus", "2");
  assert.match(await text(), /on each of 2 GPUs/);
  for (const [field, value] of [["#budget", "24"], ["#context", "many"], ["#budget", ""]]) {
    await page.fill(field, value);
    assert.match(await text(), /invalidOption/, field);
    await page.fill(field, field === "#budget" ? "24GB" : "8k");
    assert.doesNotMatch(await text(), /invalidOption/);
  }
  await page.close();
});

test("the host is named if it is not the public Hub", { timeout: 60_000 }, async () => {
  const page = await visit("gpt2");
  const host = new URL(cors.url).host;
  assert.match(await page.textContent("#host"), new RegExp(`reads ${host}`));
  assert.match(await page.textContent("#result section"), new RegExp(`from ${host}`));
  await page.close();
});

test("texts are copied", { timeout: 60_000 }, async () => {
  const page = await visit("gpt2");
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const copied = async (label, section) => {
    await page.click(`section:has(h2:text-is("${section}")) button:text-is("${label}")`);
    await page.waitForSelector("button:text-is('Copied')");
    return page.evaluate(() => navigator.clipboard.readText());
  };
  assert.match(await copied("Copy", "Badge"), /^!\[params: 137M\]/);
  assert.equal(await copied("Copy link", "gpt2"), page.url());
  assert.equal(JSON.parse(await copied("Copy JSON", "gpt2")).parameterTotal, 137022720);
  await page.close();
});

test("a token is sent to the Hub, and one that is rejected hides nothing", { timeout: 60_000 }, async () => {
  const page = await visit("gpt2");
  const tokens = [];
  await page.route(`${cors.url}/**`, (route) => {
    const { authorization } = route.request().headers();
    tokens.push(authorization);
    if (authorization !== "Bearer hf_old") return route.continue();
    const headers = { "access-control-allow-origin": "*", "access-control-expose-headers": EXPOSED, "x-error-message": "Invalid credentials in Authorization header" };
    return route.fulfill({ status: 401, headers });
  });
  await page.click("summary:has-text('Private repositories')");
  await page.fill("#token", "hf_old");
  await page.click("button:has-text('Inspect')");
  await page.waitForSelector(".error");
  assert.match(await page.textContent(".error"), /rejectedToken the Hub rejected the token/);
  assert.match(await page.textContent("#result"), /137M parameters/);
  assert.ok(tokens.includes("Bearer hf_old") && tokens.includes(undefined), String(tokens));
  assert.equal(await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }])), "[{},{}]");
  await assertAccessible(page);
  await page.close();
});

test("a local folder is read and verified in the browser", { timeout: 60_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "hf-meta-page-"));
  const model = join(folder, "mine");
  cpSync(new URL("../../../fixtures/pytorch", import.meta.url), join(model, "weights"), { recursive: true });
  writeFileSync(join(model, "model.safetensors"), GOOD);
  // BLOOM has no maximum context.
  const config = { architectures: ["BloomForCausalLM"], model_type: "bloom", n_layer: 2, n_head: 2, hidden_size: 8 };
  writeFileSync(join(model, "config.json"), JSON.stringify(config));
  const page = await browser.newPage();
  await page.goto(`${files.url}/page/index.html`);
  const requests = [];
  page.on("request", (request) => !request.url().startsWith(files.url) && requests.push(request.url()));
  await page.click("summary:has-text('Private repositories')");
  await page.setInputFiles("#folder", model);
  await page.waitForSelector("#result h2");
  assert.match(await page.textContent("#result"), /^mine.*2 parameters/);
  assert.match(await page.textContent("section:has(#budget)"), /It fits at 4,096 tokens \(assumed\)/);
  await page.click("text=Verify all files");
  await page.waitForSelector("text=/alid: /");
  assert.match(await page.textContent("section:has(button:text-is('Verify all files'))"), /alid: 1 of 1/);
  assert.deepEqual(requests, []);
  await page.close();
  rmSync(folder, { recursive: true });
});

/** Returns a PNG file with a gradient. */
function png(width, height) {
  const crc = (bytes) => {
    let sum = ~0;
    for (const byte of bytes) {
      sum ^= byte;
      for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
    }
    return ~sum >>> 0;
  };
  const chunk = (kind, content) => {
    const [body, length, check] = [Buffer.concat([Buffer.from(kind), content]), Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(content.length);
    check.writeUInt32BE(crc(body));
    return Buffer.concat([length, body, check]);
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(width);
  head.writeUInt32BE(height, 4);
  head.set([8, 2], 8);
  const pixels = Buffer.alloc(height * (1 + 3 * width));
  for (let y = 0; y < height; y++) for (let x = 0; x < width; x++) pixels.set([x % 256, y % 256, 128], y * (1 + 3 * width) + 1 + 3 * x);
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", head), chunk("IDAT", deflateSync(pixels)), chunk("IEND", Buffer.alloc(0))]);
}

const MARKUP = '<img src="x" onerror="document.title = 1"><script>document.title = 1</script>';
const THUMBNAIL = `data:image/png;base64,${png(192, 128).toString("base64")}`;

/** Opens a local file with these metadata in the page. */
async function showMetadata(metadata) {
  const folder = mkdtempSync(join(tmpdir(), "hf-meta-page-"));
  const model = join(folder, "lora");
  mkdirSync(model);
  writeFileSync(join(model, "model.safetensors"), file({ __metadata__: metadata, w: { dtype: "F32", shape: [2], data_offsets: [0, 8] } }));
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => /Content Security Policy/.test(message.text()) && errors.push(message.text()));
  page.on("request", (request) => !/^(data|blob):/.test(request.url()) && !request.url().startsWith(files.url) && errors.push(request.url()));
  await page.goto(`${files.url}/page/index.html`);
  await page.click("summary:has-text('Private repositories')");
  await page.setInputFiles("#folder", model);
  await page.waitForSelector("#result h2");
  assert.deepEqual(errors, []);
  rmSync(folder, { recursive: true });
  return page;
}

test("metadata are text, and the thumbnail is an image", { timeout: 60_000 }, async () => {
  const page = await showMetadata({
    format: "pt", "modelspec.title": `My LoRA ${MARKUP}`, "modelspec.author": "A & B <b>bold</b>", "modelspec.license": "CC-BY-4.0",
    "modelspec.tags": "dog, park", "modelspec.thumbnail": THUMBNAIL, "modelspec.unknown": "<iframe srcdoc='x'></iframe>",
    ss_tag_frequency: JSON.stringify({ "10_dog": Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`tag ${at}`, at])) }),
  });
  const section = "section:has(h2:text-is('Metadata'))";
  await page.click(`${section} summary`);
  const text = await page.textContent(section);
  for (const part of [`My LoRA ${MARKUP}`, "A & B <b>bold</b>", "CC-BY-4.0", "dog, park", "<iframe srcdoc='x'></iframe>"]) assert.ok(text.includes(part), part);
  assert.equal(await page.locator("#result :is(script, iframe, object, embed, b)").count(), 0);
  const image = await page.locator(`${section} img`).evaluate(async (image) => {
    await image.decode();
    return { src: image.src.slice(0, 22), size: [image.naturalWidth, image.naturalHeight], names: image.getAttributeNames().sort() };
  });
  assert.deepEqual(image, { src: "data:image/png;base64,", size: [192, 128], names: ["alt", "decoding", "height", "src", "width"] });
  assert.equal(await page.locator("img").count(), 1);
  assert.match(await page.title(), /^lora/);
  await assertAccessible(page);
  for (const [width, colorScheme] of VARIANTS) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(overflow <= 0, `${overflow} px too wide at ${width} px`);
    if (screenshots) await page.screenshot({ path: `${screenshots}/metadata-${width}-${colorScheme}.png`, fullPage: true });
  }
  await page.close();
});

test("a thumbnail that is no image, or too large, is not shown", { timeout: 120_000 }, async () => {
  const svg = Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" onload="document.title = 1"/>').toString("base64");
  const urls = [
    `data:image/svg+xml;base64,${svg}`, `data:image/png;base64,${svg}`, "data:text/html,<script>document.title = 1</script>", "https://example.org/x.png",
    "javascript:document.title = 1", "data:image/png;base64,%%%", `${THUMBNAIL.slice(0, 22)}${"A".repeat(1_000_001)}`, `data:image/png;base64,${png(5000, 1).toString("base64")}`,
  ];
  for (const url of urls) {
    const page = await showMetadata({ "modelspec.title": "x", "modelspec.thumbnail": url });
    assert.equal(await page.locator("img, svg image").count(), 0, url.slice(0, 80));
    assert.match(await page.title(), /^lora/);
    await page.close();
  }
});

test("100,000 keys with control characters are bounded", { timeout: 60_000 }, async () => {
  const entries = Array.from({ length: 100_000 }, (_, at) => [`${MARKUP}\n\u001b[2J\u202e${at}`, "x"]);
  const page = await showMetadata(Object.fromEntries(entries));
  assert.match(await page.textContent("section:has(h2:text-is('Metadata'))"), /All 100,000 entries, the first 200 are shown/);
  assert.equal(await page.locator("section:has(h2:text-is('Metadata')) tbody tr").count(), 200);
  assert.equal(await page.locator("img").count(), 0);
  await page.close();
});

test("plain metadata are not shown", { timeout: 60_000 }, async () => {
  const page = await showMetadata({ format: "pt" });
  assert.equal(await page.locator("h2:text-is('Metadata')").count(), 0);
  await page.close();
});

test("the service serves the page, and its address leads there", { timeout: 60_000 }, async () => {
  const service = await startService(cors.url, "--inspector", new URL("../pkg", import.meta.url).pathname);
  const page = await browser.newPage();
  const failed = [];
  page.on("response", (response) => response.status() >= 400 && failed.push(response.url()));
  page.on("pageerror", (error) => failed.push(String(error)));
  for (const path of ["/inspect", "/inspect/"]) {
    await page.goto(`${service.url}${path}?hub=${encodeURIComponent(cors.url)}`);
    assert.equal(new URL(page.url()).pathname, "/inspect/page/index.html");
  }
  await page.goto(`${service.url}/?repo=openai/gpt-oss-20b&revision=main`);
  await page.click("text=Tensors, modules and memory");
  await page.waitForSelector("#result h2");
  assert.match(await page.textContent("#result"), /openai\/gpt-oss-20b@main.*20\.9B parameters/);
  await page.click("text=Verify all files");
  await page.waitForSelector("text=/alid: /");
  assert.deepEqual(failed, []);
  await page.close();
  service.stop();
});

test("the page verifies a model", { timeout: 60_000 }, async () => {
  for (const [name, text] of Object.entries({ gpt2: /Valid: 1 of 1 weight files/, "CompVis/stable-diffusion-v1-4": /Not valid: 3 of 3.*`tokenizer`, whose files are missing/ })) {
    const page = await visit(name, { width: 390 });
    await page.click("text=Verify all files");
    await page.waitForSelector("text=/alid: /");
    assert.match(await page.textContent("section:has(button:text-is('Verify all files'))"), text);
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
