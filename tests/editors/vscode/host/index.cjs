// Tests that run inside VS Code's extension host: what other code in the editor sees of the extension.
const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const vscode = require("vscode");

const PATIENCE = Number(process.env.PATIENCE ?? 60_000);
const root = () => vscode.workspace.workspaceFolders[0].uri;
const file = (name) => vscode.Uri.joinPath(root(), name);

async function until(what, look) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await look();
    if (found) return found;
    assert.ok(Date.now() < end, `waited in vain for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function open(name) {
  const document = await vscode.workspace.openTextDocument(file(name));
  await vscode.window.showTextDocument(document);
  return document;
}

async function set(key, value) {
  await vscode.workspace.getConfiguration("kernel-lsp").update(key, value, vscode.ConfigurationTarget.Workspace);
}

const at = (document, text) => document.positionAt(document.getText().indexOf(text));
const lenses = async (uri) =>
  ((await vscode.commands.executeCommand("vscode.executeCodeLensProvider", uri)) ?? []).map((one) => one.command?.title ?? "");
const actions = async (document, text) => {
  const place = at(document, text);
  const found = await vscode.commands.executeCommand("vscode.executeCodeActionProvider", document.uri, new vscode.Range(place, place));
  return (found ?? []).map((one) => one.title);
};

const tests = {
  async "nothing starts before a kernel is open"() {
    const document = await open("pyproject.toml");
    assert.ok(document);
    const known = vscode.extensions.getExtension("kernel-lsp.kernel-lsp");
    assert.ok(known, "the extension is there");
    assert.equal(known.isActive, false);
  },
  async "a plain PyTorch module starts the server too"() {
    const document = await open("mean_square.py");
    await until("actions", async () => (await actions(document, "Model(")).includes("Check mean_square.py"));
  },
  async "a missing server is said to be missing, and a setting finds it"() {
    await set("server.path", path.join(root().fsPath, "no-such-server"));
    await open("softmax.py");
    const known = vscode.extensions.getExtension("kernel-lsp.kernel-lsp");
    await until("activation", () => known.isActive);
    await new Promise((resolve) => setTimeout(resolve, 1000));
    assert.deepEqual(await lenses(file("softmax.py")), []);
    const server = path.join(root().fsPath, ".home/bin/kernel-lsp");
    fs.accessSync(server, fs.constants.X_OK);
    await set("server.path", server);
    await until("lenses", async () => (await lenses(file("softmax.py"))).length > 0);
    await set("server.path", undefined);
  },
  async "lenses tell facts and offer what was verified"() {
    const document = await open("softmax.py");
    await until("facts", async () => (await lenses(document.uri)).some((title) => /\d+ regs/.test(title)));
    const titles = await lenses(document.uri);
    assert.ok(titles.includes("Refine"), String(titles));
    assert.ok(titles.includes("1.25x faster: show difference"), String(titles));
  },
  async "actions at a kernel"() {
    const document = await open("softmax.py");
    const titles = await until("actions", async () => {
      const found = await actions(document, "softmax_kernel(");
      return found.some((title) => title.startsWith("Refine ")) && found;
    });
    assert.ok(titles.some((title) => title.startsWith("Apply num_warps 4 -> 2: 1.25x faster")), String(titles));
    assert.ok(titles.includes("Check softmax.py"), String(titles));
  },
  async "the facts lead to the machine code beside the source"() {
    const document = await open("softmax.py");
    await until("facts", async () => (await lenses(document.uri)).some((title) => /\d+ regs/.test(title)));
    await vscode.commands.executeCommand("kernel-lsp.machineCode", document.uri.toString(), "softmax_kernel");
    const listing = vscode.window.visibleTextEditors.find(({ document }) => document.uri.scheme === "kernel-lsp-sass");
    assert.ok(listing, "no view of it is open");
    assert.match(listing.document.lineAt(0).text, /addr live {3}softmax_kernel/);
    await vscode.commands.executeCommand("workbench.action.closeAllEditors");
  },
  async "a hover on a kernel's name shows its cost"() {
    const document = await open("softmax.py");
    const text = await until("a hover", async () => {
      const found = await vscode.commands.executeCommand("vscode.executeHoverProvider", document.uri, at(document, "softmax_kernel("));
      return found?.flatMap((one) => one.contents.map((content) => content.value ?? content)).join("\n");
    });
    assert.match(text, /occupancy/);
  },
  async "settings reach the server: hints appear when they are asked for"() {
    const document = await open("softmax.py");
    const whole = new vscode.Range(0, 0, document.lineCount, 0);
    const hints = () => vscode.commands.executeCommand("vscode.executeInlayHintProvider", document.uri, whole);
    assert.deepEqual((await hints()) ?? [], []);
    await set("editor.registerHints", true);
    await until("hints", async () => ((await hints()) ?? []).some((hint) => /regs/.test(hint.label)));
    await set("editor.registerHints", undefined);
  },
  async "a compile error is a diagnostic"() {
    await open("broken.cu");
    const found = await until("a diagnostic", () => vscode.languages.getDiagnostics(file("broken.cu"))[0]);
    assert.match(found.message, /"two" is undefined/);
    assert.equal(found.range.start.line, 2);
  },
  async "a text that is in no file yet is compiled"() {
    const content = "__global__ void mine(float* x) { x[threadIdx.x] = three; }\n";
    const document = await vscode.workspace.openTextDocument({ language: "cuda-cpp", content });
    await vscode.window.showTextDocument(document);
    const found = await until("a diagnostic", () => vscode.languages.getDiagnostics(document.uri)[0]);
    assert.match(found.message, /"three" is undefined/);
    await vscode.commands.executeCommand("workbench.action.revertAndCloseActiveEditor");
  },
  async "a variant is applied by its action, and the text is as it was judged"() {
    const document = await open("softmax.py");
    const place = at(document, "softmax_kernel(");
    const found = await vscode.commands.executeCommand(
      "vscode.executeCodeActionProvider", document.uri, new vscode.Range(place, place), undefined, 20,
    );
    const apply = found.find((one) => one.title.startsWith("Apply num_warps 4 -> 2"));
    assert.ok(apply?.edit, "the action is resolved with its edit");
    const before = document.getText();
    assert.ok(await vscode.workspace.applyEdit(apply.edit));
    assert.equal(document.getText(), before.replace("num_warps=4", "num_warps=2"));
    await vscode.commands.executeCommand(apply.command.command, ...apply.command.arguments); // as VS Code does then
    assert.equal(vscode.window.activeTextEditor.selection.active.line, at(document, "num_warps=2").line);
    await vscode.commands.executeCommand("workbench.action.files.revert");
  },
  async "settings are named as VS Code's own are"() {
    const { configuration } = vscode.extensions.getExtension("kernel-lsp.kernel-lsp").packageJSON.contributes;
    const names = configuration.flatMap((section) => Object.keys(section.properties));
    assert.ok(names.includes("kernel-lsp.refine.secondOpinion"), String(names));
    assert.deepEqual(names.filter((name) => name.includes("_")), []);
  },
  async "the page that a finding links to opens as a person reads it"() {
    const folder = path.join(root().fsPath, ".home/rules/0.1.0");
    fs.mkdirSync(folder, { recursive: true });
    const page = path.join(folder, "KL010.md");
    fs.writeFileSync(page, "# KL010\n\nReads past the end.\n");
    await vscode.commands.executeCommand("vscode.open", vscode.Uri.file(page)); // as a click on a finding's code does
    await until("a preview", () => vscode.window.tabGroups.activeTabGroup.activeTab?.input?.viewType === "vscode.markdown.preview.editor");
    await vscode.commands.executeCommand("workbench.action.closeActiveEditor");
  },
  async "every command that the manifest names is there"() {
    const known = vscode.extensions.getExtension("kernel-lsp.kernel-lsp");
    const registered = await vscode.commands.getCommands(true);
    for (const { command } of known.packageJSON.contributes.commands) assert.ok(registered.includes(command), command);
  },
  async "it says the truth about where it works"() {
    const { capabilities, extensionKind } = vscode.extensions.getExtension("kernel-lsp.kernel-lsp").packageJSON;
    assert.equal(capabilities.untrustedWorkspaces.supported, "limited");
    assert.ok(capabilities.untrustedWorkspaces.restrictedConfigurations.includes("kernel-lsp.server.path"));
    assert.equal(capabilities.virtualWorkspaces.supported, false);
    assert.deepEqual(extensionKind, ["workspace"]);
  },
  async "a report has what somebody else needs to know"() {
    await set("refine.turns", 3);
    await vscode.commands.executeCommand("kernelLsp.report");
    const { document } = vscode.window.activeTextEditor;
    const text = document.getText();
    assert.equal(document.isUntitled, true, "nobody has it yet");
    const { version } = vscode.extensions.getExtension("kernel-lsp.kernel-lsp").packageJSON;
    assert.match(text, new RegExp(`- extension: ${version}\n`));
    assert.match(text, /- server: .*, found by /);
    assert.match(text, /"kernel-lsp.refine.turns": 3/);
    assert.match(text, /nvrtc +[\d.]+/, "what doctor prints");
    assert.match(text, /\[info\] starting .*kernel-lsp, found by/, "the log");
    await set("refine.turns", undefined);
    await vscode.commands.executeCommand("workbench.action.revertAndCloseActiveEditor");
  },
};

exports.run = async () => {
  let failed = 0;
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`test passed: ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`test failed: ${name}: ${error.stack ?? error}`);
    }
  }
  if (failed > 0) throw new Error(`${failed} tests failed`);
};
