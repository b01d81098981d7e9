// The walkthrough in a VS Code that has nothing else, on a machine without the server; `uv` is a stand-in that makes an
// environment of the Python that runs the tests. usage: node first_minutes.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
const PICTURES = {
  "Open a kernel": "02-lenses-and-hover",
  "Check it, without a GPU": "42-checked",
  "Break it": "43-a-mistake-at-its-line",
  "Make it faster, with a GPU": "06-difference",
};
await sit({ vsix }, folder, undefined, async (me, server) => {
  await me.page.locator(".explorer-folders-view, .explorer-viewlet").first().waitFor();
  await me.command("Kernel LSP: The First Five Minutes");
  const step = (text) => me.page.locator(".getting-started-step", { hasText: text }).first();
  await step("Get the server").waitFor();
  await me.shot("40-walkthrough");
  assert.ok(await me.isWhole(".getting-started-step .step-title"), "a title is cut off");
  await me.command("View: Toggle Primary Side Bar Visibility");
  for (const [title, picture] of Object.entries(PICTURES)) {
    await step(title).click();
    const page = await me.webview();
    const isSeen = (images, name) => images.some(({ src, naturalWidth }) => src.includes(name) && naturalWidth > 600);
    await me.until(`the picture of ${title}`, async () => {
      const images = page.locator("img");
      return await images.evaluateAll(isSeen, picture).catch(() => false); // the page of the step before goes meanwhile
    });
  }
  await me.shot("44-a-step-with-its-picture");
  await me.command("View: Toggle Primary Side Bar Visibility");
  await step("Get the server").click();
  await me.page.locator(".getting-started-step .monaco-button", { hasText: "Install Server" }).first().click();
  await me.toast("is installed and running").waitFor();
  await me.shot("41-installed");
  await me.dismiss();

  await step("Check it, without a GPU").click();
  await me.page.locator(".getting-started-step .monaco-button", { hasText: "Check the Example" }).first().click();
  const checked = me.toast("checks passed");
  await checked.waitFor();
  await me.lens("regs").waitFor();
  await me.shot("42-checked");
  await me.dismiss();

  const line = me.page.locator(".editor-instance .view-line", { hasText: "if (i < n)" }).first();
  await line.click();
  await me.page.keyboard.press("Control+Shift+K");
  await me.page.keyboard.press("Control+s");
  await me.page.locator(".squiggly-error").first().waitFor();
  await me.command("Go to Next Problem in Files");
  await me.page.locator(".marker-widget", { hasText: "but `x` has 1,000 elements" }).waitFor();
  await me.shot("43-a-mistake-at-its-line");
  const problems = await me.page.locator(".marker-widget").innerText();
  assert.match(problems, /kernel-lsp/);
});
