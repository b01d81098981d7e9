// A workspace that nobody trusts yet, and then trusts. usage: node restricted.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { below, sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
await sit({ vsix, trusting: false }, folder, "softmax.py", async (me, server) => {
  await me.until("the language server", () => me.serverProcess(server));
  await me.command("Kernel LSP: Focus on Kernels View");
  await me.rows("softmax_kernel").first().waitFor();
  await me.rows("not trusted").first().waitFor();
  const pid = me.serverProcess(server);
  await me.page.waitForTimeout(3000); // for what would be started by then if anything were
  assert.deepEqual(below(pid), [], "an untrusted workspace starts no process but the server");
  assert.equal(await me.toast("is not trusted").count(), 0, "VS Code asks for trust, and the server does not");
  assert.ok(!existsSync(join(folder, "started")), "a server of the workspace's own was started");
  const offered = await me.commands("Kernel LSP");
  assert.ok(offered.some((name) => name.includes("Restart Server")), String(offered));
  for (const absent of ["Refine", "Check", "Show Machine Code", "Doctor", "Stop All Jobs"]) {
    assert.ok(!offered.some((name) => name.endsWith(`: ${absent}`)), `${absent} is offered where it cannot work`);
  }
  await me.shot("30-not-trusted");

  await me.command("Workspaces: Manage Workspace Trust");
  await me.page.locator(".workspace-trust-editor .monaco-button", { hasText: "Trust" }).first().click();
  await me.until("another server", () => me.serverProcess(server) !== undefined && me.serverProcess(server) !== pid);
  await me.page.keyboard.press("Escape");
  await me.open("softmax.py");
  await me.lens("regs").waitFor();
  await me.shot("31-trusted");
});
