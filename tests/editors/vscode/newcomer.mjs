// The first minutes of somebody who reads nothing: from a folder with one kernel to its mistake mended and its machine
// code, by what can be clicked alone. usage: node newcomer.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { sit } from "./workbench.mjs";

const MOST = 12; // clicks
const [, , folder, vsix] = process.argv;
const settings = { "security.workspace.trust.banner": "always" };
await sit({ vsix, trusting: false, settings }, folder, "scale_bias.cu", async (me, server) => {
  const { page } = me;
  await page.evaluate(() => {
    window.clicks = 0;
    document.addEventListener("mousedown", () => window.clicks++, true);
  });
  const kernel = page.locator(".editor-group-container").first();
  const draft = page.locator(".editor-group-container").last();
  const line = (group, text) => group.locator(".view-line", { hasText: text }).first();
  const choose = async (title) => {
    await me.until(`the fix ${title}`, async () => {
      await page.keyboard.press("Control+.");
      const found = page.locator(".action-widget .monaco-list-row", { hasText: title }).first();
      if (!(await found.waitFor({ timeout: 3000 }).then(() => true, () => false))) {
        await page.keyboard.press("Escape"); // fixes of a finding are checked themselves before they are offered
        return false;
      }
      await me.shot(title.startsWith("Use") ? "73-the-draft-and-its-fix" : "75-the-fix");
      await found.click();
      return true;
    });
  };

  const banner = page.locator(".banner-banner, .part.banner").locator("a", { hasText: "Manage" }).first();
  await banner.waitFor();
  await me.shot("70-do-you-trust-it");
  await banner.click();
  await page.locator(".workspace-trust-editor .monaco-button", { hasText: "Trust" }).first().click();
  await me.status("Restricted Mode").waitFor({ state: "detached" });
  await page.waitForTimeout(1000); // for the extensions that start again
  await page.locator(".monaco-modal-editor-block .codicon-close").last().click();
  await page.locator(".monaco-modal-editor-block").waitFor({ state: "detached" });

  const missing = me.toast("was not found on this machine");
  await missing.waitFor();
  await me.shot("71-no-server");
  await me.press(missing, "Install");
  await me.lens("Draft a workload").waitFor();
  await me.shot("72-the-next-step");

  await me.pick("Draft a workload");
  await line(draft, "x * scale + bias").waitFor();
  await choose("Use this workload");
  await kernel.locator(".squiggly-error").first().waitFor();
  await me.shot("74-a-mistake-at-its-line");

  const { x, y } = await line(kernel, "y[i] = x[i]").boundingBox();
  await page.mouse.click(x + 60, y + 9); // a line that is longer than its editor has its middle elsewhere
  await choose("(checked)");
  await line(kernel, "if (i < rows * cols)").waitFor();
  await me.lens("checks passed").waitFor();
  await me.toast("checks passed").locator(".codicon-info").first().waitFor();
  await me.lens("occupancy").waitFor();
  await me.shot("76-checked");

  await me.pick("occupancy");
  await page.locator('.tab[data-resource-name="scale_bias.cu.nvsass"]').first().waitFor();
  await page.locator(".view-line", { hasText: "ISETP.GE" }).first().waitFor();
  await me.shot("77-machine-code");

  me.film("78-first-minutes", 10);

  const clicks = await page.evaluate(() => window.clicks);
  me.say(`${clicks} clicks, and Ctrl+. twice`);
  assert.ok(clicks + 2 <= MOST, `${clicks} clicks`);
  assert.ok(me.serverProcess(server));
});
