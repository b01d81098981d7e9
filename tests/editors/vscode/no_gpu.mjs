// A machine without a GPU: nothing is searched there, unless the user wants that; and compilers that are killed.
// usage: node no_gpu.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { below, sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
await sit({ vsix }, folder, "scale.cu", async (me, server) => {
  const offers = async (name) => (await me.commands(`Kernel LSP: ${name}`)).includes(`Kernel LSP: ${name}`);
  const lens = me.lens("Refine (needs a GPU)");
  await lens.waitFor();
  assert.ok(await offers("Check"));
  assert.ok(!(await offers("Refine")), "it is offered where it cannot work");
  await me.pick("Refine (needs a GPU)");
  const refusal = me.toast("needs an NVIDIA GPU");
  await refusal.waitFor();
  assert.equal(await refusal.locator(".codicon-info").count(), 1, "it is no mistake of the user's");
  await me.shot("60-no-gpu");
  await me.press(refusal, "What to Do");
  await me.toast("over SSH").waitFor();
  await me.dismiss();
  await me.pick("Refine (needs a GPU)");
  await me.press(refusal, "Check without One");
  await me.toast("checks passed").waitFor();
  await me.dismiss();

  const troubled = me.page.locator(".statusbar-item[aria-label*='not compiling']");
  await me.edit("scale.cu", "0.5f * x[i]", "0.5f * x[j]");
  await me.page.keyboard.press("Control+Home");
  await me.until("the state of a server whose compilers are killed", async () => {
    for (const [pid] of compilers()) kill(pid);
    return (await troubled.count()) > 0;
  });
  assert.equal(await me.page.locator(".squiggly-error").count(), 0, "the text is not to blame");
  await me.status("Kernel LSP").click();
  await me.page.locator(".quick-input-widget input[placeholder^='Not compiled: ']").waitFor();
  await me.shot("61-compilers-that-were-killed");
  await me.page.keyboard.press("Escape");
  await me.edit("scale.cu", "0.5f * x[j]", "0.5f * x[k]");
  await me.page.locator(".squiggly-error").first().waitFor();
  await troubled.waitFor({ state: "detached" });

  writeFileSync(join(folder, "pyproject.toml"), "[tool.kernel-lsp]\nrefine.untimed = true\n");
  await me.until("a search without a GPU", () => offers("Refine"));
  await lens.waitFor({ state: "detached" });

  /** The processes that the server's own one for compiling has started. */
  function compilers() {
    return below(me.serverProcess(server)).filter(([, line]) => line.includes("kernel_lsp.runner.zygote"));
  }
});

function kill(pid) {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // it has ended meanwhile
  }
}
