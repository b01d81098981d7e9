// A workspace that brings its own server and is not trusted yet; `uv` is a stand-in that comes to no end.
// usage: node brought.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
await sit({ vsix, trusting: false }, folder, "softmax.py", async (me, server) => {
  const offer = me.toast("This workspace brings a kernel-lsp. Trust the workspace to use it.");
  await offer.locator(".monaco-button", { hasText: "Manage Trust" }).waitFor();
  assert.equal(me.serverProcess(server), undefined);
  await me.shot("32-a-server-of-the-workspace");

  const uv = join(folder, "../uv.pid");
  await me.command("Kernel LSP: Install Server");
  const progress = me.toast("Installing the server of Kernel LSP");
  await me.until("uv", () => existsSync(uv) && readFileSync(uv, "utf8").trim());
  await me.until("what it says", async () => (await progress.innerText()).includes("Resolved 41 packages"));
  assert.equal(await me.page.locator(".monaco-dialog-box").count(), 0, "nobody is asked to trust for that");
  await me.shot("33-installing");
  await me.press(progress, "Cancel");
  await progress.waitFor({ state: "detached" });
  await me.until("the end of uv", () => !existsSync(`/proc/${readFileSync(uv, "utf8").trim()}`));

  await me.status("Kernel LSP").click(); // the message may be gone by now, and its button is in the menu too
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "Manage Trust" }).click();
  await me.page.locator(".workspace-trust-editor .monaco-button", { hasText: "Trust" }).first().click();
  await me.until("the workspace's server", () => me.serverProcess(server));
  await me.page.keyboard.press("Escape");
  await me.open("softmax.py");
  await me.lens("regs").waitFor();
});
