// The walkthrough in a VS Code that has nothing else, on a machine without the server; `uv` is a stand-in that makes an
// environment of the Python that runs the tests. usage: node first_minutes.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
await sit({ vsix }, folder, undefined, async (me, server) => {
  await me.page.locator(".explorer-folders-view, .explorer-viewlet").first().waitFor();
  await me.command("Kernel LSP: The First Five Minutes");
  const step = (text) => me.page.locator(".getting-started-step", { hasText: text }).first();
  await step("Get the server").waitFor();
  await me.shot("40-walkthrough");
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
  await me.page.locator(".marker-widget", { hasText: /past the end|out of bounds|outside/ }).waitFor();
  await me.shot("43-a-mistake-at-its-line");
  const problems = await me.page.locator(".marker-widget").innerText();
  assert.match(problems, /kernel-lsp/);
});
