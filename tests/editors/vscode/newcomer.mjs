// The first minutes of somebody who reads nothing: from a folder with one kernel to its mistake mended and its machine
// code, by what can be clicked alone. usage: node newcomer.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { sit } from "./workbench.mjs";

const MOST = 12; // clicks
const [, , folder, vsix] = process.argv;
const settings = { "security.workspace.trust.startupPrompt": "always", "security.workspace.trust.banner": "always" };
await sit({ vsix, trusting: false, settings }, folder, "scale_bias.cu", async (me, server) => {
  const { page } = me;
  await page.evaluate(() => {
    window.done = { clicks: 0, keys: 0 };
    document.addEventListener("mousedown", () => window.done.clicks++, true);
    document.addEventListener("keydown", ({ key }) => (window.done.keys += key === "Control" ? 0 : 1), true);
  });
  const kernel = page.locator(".editor-group-container").first();
  const draft = page.locator(".editor-group-container").last();
  const line = (group, text) => group.locator(".view-line", { hasText: text }).first();
  const choose = async (title) => {
    await me.until(`the fix ${title}`, async () => {
      await page.keyboard.press("Control+.");
      const found = page.locator(".action-widget .monaco-list-row", { hasText: title }).first();
      if (!(await found.waitFor({ timeout: 5000 }).then(() => true, () => false))) return false;
      await me.shot(title.startsWith("Use") ? "63-the-draft-and-its-fix" : "65-the-fix");
      await found.click();
      return true;
    });
  };

  const yes = page.locator(".monaco-dialog-box .monaco-button", { hasText: "Yes" }).first();
  await yes.waitFor();
  await me.shot("60-do-you-trust-it");
  await yes.click();

  const missing = me.toast("was not found on this machine");
  await missing.waitFor();
  await me.shot("61-no-server");
  await me.press(missing, "Install");
  await me.lens("Draft a workload").waitFor();
  await me.shot("62-the-next-step");

  await me.pick("Draft a workload");
  await line(draft, "x * scale + bias").waitFor();
  await line(draft, "kernel-lsp: draft").click();
  await choose("Use this workload");
  await kernel.locator(".squiggly-error").first().waitFor();
  await me.shot("64-a-mistake-at-its-line");

  await line(kernel, "y[i] = x[i]").click();
  await choose("(checked)");
  await line(kernel, "if (i < rows * cols)").waitFor();
  await me.lens(/^Check$/).waitFor();
  await me.pick(/^Check$/);
  await me.lens("checks passed").waitFor();
  await me.lens("occupancy").waitFor();
  await me.shot("66-checked");

  await me.pick("occupancy");
  await page.locator(".tab", { hasText: "machine code" }).first().waitFor();
  await page.locator(".view-line", { hasText: "FFMA" }).first().waitFor();
  await me.shot("67-machine-code");

  const { clicks, keys } = await page.evaluate(() => window.done);
  me.say(`${clicks} clicks, ${keys} keys`);
  assert.ok(clicks + keys <= MOST, `${clicks} clicks and ${keys} keys`);
  assert.ok(me.serverProcess(server));
});
