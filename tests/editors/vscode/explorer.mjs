// Checks in the Test Explorer: run from there, and failed by an edit that is saved. usage: node explorer.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
await sit({ vsix }, folder, "scale.cu", async (me) => {
  await me.lens("regs").waitFor();
  await me.command("Testing: Focus on Test Explorer View");
  const row = (text) => me.page.locator(".test-explorer .monaco-list-row", { hasText: text }).first();
  await row("scale.cu").waitFor();
  await me.page.locator(".editor-instance .view-line", { hasText: "y[i]" }).first().click();
  await me.command("Test: Run Tests in Current File");
  await me.page.locator(".test-explorer .monaco-list-row[aria-label*='scale.cu'][aria-label*='Passed']").waitFor();
  await row("scale.cu").click();
  await me.page.keyboard.press("ArrowRight");
  await row("n=100").waitFor();
  await row("n=100").click();
  await me.page.keyboard.press("ArrowRight");
  await row("inputs:").waitFor();
  await me.shot("50-checks-as-tests");

  await me.command("Kernel LSP: Focus on Kernels View");
  await me.rows("scale.cu").filter({ hasText: "checks passed" }).first().waitFor();
  await me.page.locator(".pane-body .monaco-list-row.selected", { hasText: "scale.cu" }).waitFor();
  await me.rows("many.cu").filter({ hasText: "12 kernels" }).first().waitFor();
  assert.equal(await me.rows("kernel_7").count(), 0, "many kernels do not crowd out the others");
  await me.rows("checks passed").locator(".codicon-pass").first().waitFor();
  await me.shot("52-kernels-that-were-checked");

  const line = me.page.locator(".editor-instance .view-line", { hasText: "if (i < n)" }).first();
  await line.click();
  await me.page.keyboard.press("Home");
  for (let press = 0; press < "if (i < n) ".length; press++) await me.page.keyboard.press("Delete");
  assert.ok(!(await me.text()).includes("if (i < n)"), await me.text());
  await me.page.keyboard.press("Control+s");
  await me.page.locator(".squiggly-error").first().waitFor();
  await me.rows("scale.cu").filter({ hasText: "2 errors" }).first().waitFor();
  await me.rows("2 errors").locator(".codicon-error").first().waitFor();
  await me.command("Testing: Focus on Test Explorer View");
  await me.page.locator(".test-explorer .monaco-list-row[aria-label*='scale.cu'][aria-label*='Failed']").waitFor();
  const said = me.page.locator(".contentWidgets .content");
  await said.filter({ hasText: "KL010: Reads" }).waitFor();
  assert.equal(await said.filter({ hasText: "on case n=100" }).count(), 0, "a finding is said at its line, and once");
  await me.shot("51-a-failed-check");

  await me.command("Kernel LSP: Focus on Kernels View");
  await me.page.locator(".sidebar .title-actions a[aria-label^='Find a Kernel']").click();
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "kernel_7" }).waitFor();
  await me.page.keyboard.type("kernel_7");
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "kernel_6" }).waitFor({ state: "detached" });
  await me.shot("53-find-a-kernel");
  await me.page.keyboard.press("Enter");
  await me.page.locator('.tab.active[data-resource-name="many.cu"]').waitFor();
  await me.status("Ln 8, Col 1").waitFor();
  await me.page.locator(".pane-body .monaco-list-row.selected", { hasText: "kernel_7" }).waitFor();
});
