// What a person does in a first session, step by step, each with a screenshot. usage: node person.mjs FOLDER VSIX
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { sit } from "./workbench.mjs";

const [, , folder, vsix] = process.argv;
const original = readFileSync(join(folder, "softmax.py"), "utf8");
const changed = original.split("\n").findIndex((line) => line.includes("num_warps=4")) + 1;
const MENU = ["Check This File", "Trust This File's Folder", "Settings", "Choose Server Path", "Doctor", "Report a Problem", "Documentation"];
const WIDE = { width: 1280, height: 760 };
await sit({ vsix }, folder, "broken.cu", async (me, server) => {
  await me.page.locator(".squiggly-error").first().waitFor();
  await me.command("Go to Next Problem in Files");
  await me.page.locator(".marker-widget", { hasText: "undefined" }).waitFor();
  await me.shot("01-diagnostic");
  await me.page.keyboard.press("Escape");

  await me.open("softmax.py");
  await me.command("View: Toggle Primary Side Bar Visibility");
  await me.lens("1.25x faster: show difference").waitFor();
  await me.lens("regs").waitFor();
  await me.until("machine code in a hover", async () => {
    await me.page.mouse.move(640, 1);
    await me.page.locator(".view-line", { hasText: "numerator = tl.exp" }).locator("span span").last().hover();
    await me.page.waitForTimeout(1000);
    return await me.page.locator(".monaco-hover", { hasText: "instructions on" }).isVisible();
  });
  await me.shot("02-lenses-and-hover", { keepMouse: true });

  await me.page.keyboard.press("Escape");
  await me.pick("Refine");
  const progress = me.toast("Refining softmax_kernel");
  await me.until("progress", async () => /\d+ candidates, [1-9]\d* correct, \d:\d\d left/.test(await progress.innerText()));
  assert.match(await me.lens("Stop (").innerText(), /^Stop \(\d:\d\d\)$/);
  await me.shot("03-progress");
  await me.press(progress, "Cancel");
  await progress.waitFor({ state: "detached" });
  await me.status("it was cancelled; what was found before is kept").waitFor();
  await me.lens("Refine").waitFor();

  await me.pick("Refine");
  const end = me.toast("Verified before: num_warps 4 -> 2: 1.25x faster");
  await end.waitFor({ timeout: 180_000 }); // the search may take its whole budget
  await me.badge("1").waitFor();
  await me.status("1.25x faster").waitFor();
  await me.shot("04-end-of-a-search");
  await me.press(end, "All 2");
  await me.page.locator(".quick-input-list .monaco-list-row").nth(1).waitFor();
  await me.shot("05-variants");
  await me.page.keyboard.press("ArrowDown");
  await me.page.keyboard.press("ArrowUp");
  await me.page.keyboard.press("Enter");
  await me.page.locator(".monaco-diff-editor .modified .view-line", { hasText: "num_warps=2" }).waitFor();
  await me.shot("06-difference");
  await me.status("1.25x faster").waitFor({ state: "detached" });
  await me.badge("1").waitFor({ state: "hidden" });
  assert.ok(await me.isAtLeft(".monaco-diff-editor .modified"), "what stands left of the difference is seen");
  await me.dismiss(); // as time does for a person: what has no buttons goes by itself where the window has the focus
  await me.page.locator(".editor-actions a[aria-label^='Apply This Variant']").click();
  await me.until("the applied variant", async () => (await me.text()).includes("num_warps=2"));
  await me.status("Applied").waitFor();
  await me.status(`Ln ${changed}, Col 1`).waitFor();
  await me.shot("07-applied");
  await me.undo();
  await me.until("the undone variant", async () => (await me.text()).includes("num_warps=4"));

  await me.page.locator(".view-line", { hasText: "def softmax_kernel" }).click();
  const apply = me.page.locator(".action-widget .monaco-list-row", { hasText: "Apply num_warps 4 -> 8" });
  await me.until("the actions", async () => {
    await me.page.keyboard.press("Control+."); // again, where a lens that came just then has closed the list
    return await apply.waitFor({ timeout: 10_000 }).then(() => true, () => false);
  });
  await me.shot("08-actions");
  await me.page.keyboard.press("Escape");

  await me.command("Kernel LSP: Show Evidence");
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "1.25x faster" }).first().waitFor();
  await me.page.keyboard.press("Enter");
  const page = await me.webview();
  await page.getByRole("heading", { name: "Time" }).waitFor();
  await page.locator("#instructions > p", { hasText: "softmax_kernel on sm_90: " }).waitFor();
  await page.locator("#plot-intervals svg").waitFor();
  await me.shot("09-evidence");
  const blocks = page.locator("#plot-blocks");
  await blocks.evaluate((one) => one.scrollIntoView());
  await me.shot("10-evidence-every-block");
  for (const [number, heading] of [["11", "Checks"], ["12", "Instructions"]]) {
    await page.getByRole("heading", { name: heading }).evaluate((one) => one.scrollIntoView());
    await me.shot(`${number}-evidence-${heading.toLowerCase()}`);
  }
  await me.keyboardReaches(page, ["Show Diff", "Apply", "Open as Text", "Copy"]);

  await me.page.emulateMedia({ colorScheme: "light" });
  await me.page.locator(".monaco-workbench.vs").waitFor();
  await page.getByRole("heading", { level: 1 }).evaluate((one) => one.scrollIntoView());
  await me.shot("13-evidence-light");
  await me.page.setViewportSize({ width: 640, height: 760 });
  await me.shot("14-evidence-narrow");
  await me.page.setViewportSize(WIDE);
  await me.command("View: Close Editor");

  await me.command("Kernel LSP: Focus on Kernels View");
  await me.rows("softmax_kernel").first().waitFor();
  await me.rows("softmax_kernel").first().click();
  await me.page.keyboard.press("ArrowRight");
  await me.rows("Occupancy").first().waitFor();
  await me.shot("15-kernels-light");
  await me.page.emulateMedia({ colorScheme: "dark" });
  await me.page.locator(".monaco-workbench.vs-dark").waitFor();
  await me.shot("16-kernels");

  await me.command("Kernel LSP: Show Machine Code");
  const listing = me.page.locator(".editor-instance").last();
  await listing.locator(".view-line", { hasText: "registers live" }).waitFor();
  await me.command("View: Toggle Primary Side Bar Visibility"); // it was shown with the view
  await me.page.locator(".view-line", { hasText: "numerator = tl.exp" }).first().click();
  await listing.locator(".view-line", { hasText: "MUFU.EX2" }).first().waitFor();
  await me.page.waitForTimeout(300);
  await me.shot("17-machine-code");
  await listing.locator(".view-line", { hasText: "MUFU.EX2" }).first().click();
  await me.page.keyboard.press("Control+Home");
  await listing.locator(".view-line", { hasText: "SR_TID" }).first().click();
  await me.shot("18-machine-code-to-source");
  await me.page.setViewportSize({ width: 640, height: 760 });
  await me.shot("19-machine-code-narrow");
  await me.page.setViewportSize(WIDE);
  await me.command("View: Close Editor");

  await me.open("softmax.py");
  await me.command("Kernel LSP: Show Verified Variants");
  await me.page.locator(".quick-input-list .monaco-list-row").nth(1).waitFor();
  await me.page.keyboard.press("Enter");
  await me.page.locator(".monaco-diff-editor .modified .view-line", { hasText: "num_warps=2" }).waitFor();
  await me.edit("softmax.py", "tl.exp(x", "tl.exp2(x");
  await me.page.locator(".tab", { hasText: "num_warps 4 -> 2" }).click();
  await me.page.locator(".editor-actions a[aria-label^='Apply This Variant']").click();
  const refusal = me.toast("This result is for an older version of the kernel.");
  await refusal.waitFor();
  assert.equal(await me.page.locator(".notifications-toasts .notification-list-item").count(), 1);
  await me.shot("20-a-stale-result-is-refused");
  await me.dismiss();
  await me.page.locator('.tab[data-resource-name="softmax.py"]').first().click();
  await me.undo();

  const died = me.killServer(server);
  const message = me.toast("stopped unexpectedly and is started again");
  await message.waitFor();
  await me.shot("21-the-server-was-killed");
  assert.equal(await me.page.locator(".notifications-toasts .notification-list-item").count(), 1);
  await me.dismiss();
  await me.lens("1.25x faster: show difference").waitFor();
  await me.until("another server", () => me.serverProcess(server) !== undefined && me.serverProcess(server) !== died);

  await me.status("Kernel LSP").click();
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "Restart Server" }).waitFor();
  await me.shot("22-menu");
  for (const entry of MENU) {
    await me.page.locator(".quick-input-widget input").first().fill(entry);
    await me.page.locator(".quick-input-list .monaco-list-row", { hasText: entry }).first().waitFor();
    assert.equal(await me.page.locator(".quick-input-list .monaco-list-row", { hasText: entry }).count(), 1, entry);
  }
  await me.page.locator(".quick-input-widget input").first().fill("");
  await me.page.keyboard.type("Report a Problem");
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "Report a Problem" }).click();
  const report = me.page.locator(".editor-instance .view-lines", { hasText: "What happened, and what did you expect?" });
  await report.waitFor();
  await me.shot("23-a-report");
  await me.page.keyboard.press("Control+End");
  await me.page.locator(".view-line", { hasText: "found by" }).last().waitFor(); // the log says what was started

  await me.status("Kernel LSP").click();
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "Restart Server" }).waitFor();
  await me.page.keyboard.type("Documentation"); // the list shows only a part of its rows
  await me.page.locator(".quick-input-list .monaco-list-row", { hasText: "Documentation" }).click();
  await me.page.locator(".tab", { hasText: /Preview readme/i }).waitFor();
  assert.equal(readFileSync(join(folder, "softmax.py"), "utf8"), original, "nothing is saved that nobody saved");
});
