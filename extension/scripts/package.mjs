// Makes the .vsix: the bundle, and the server as a wheel, so that extension and server are always of one version.
// usage: package.mjs [--target linux-x64] [--pre-release], which vsce takes; the file is named by its target.
import { execFileSync } from "node:child_process";
import { copyFileSync, rmSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const LARGEST = 3 * 2 ** 20; // pictures of the page lie in it, an animation among them
const here = dirname(dirname(fileURLToPath(import.meta.url)));
const run = (command, ...given) => execFileSync(command, given, { cwd: here, stdio: "inherit" });

rmSync(join(here, "server"), { recursive: true, force: true });
run(
  process.env.PYTHON ?? "python3",
  "-m",
  "pip",
  "wheel",
  "--quiet",
  "--disable-pip-version-check",
  "--no-deps",
  "--wheel-dir",
  "server",
  "..",
);
copyFileSync(join(here, "../LICENSE"), join(here, "LICENSE"));
run(process.execPath, "scripts/build.mjs");
const given = process.argv.slice(2);
const target = given.includes("--target") ? `-${given[given.indexOf("--target") + 1]}` : "";
const file = `kernel-lsp${target}.vsix`;
run(
  process.execPath,
  "node_modules/@vscode/vsce/vsce",
  "package",
  "--no-dependencies",
  "--allow-missing-repository",
  "--no-rewrite-relative-links",
  "--out",
  file,
  ...given,
);
const { size } = statSync(join(here, file));
if (size > LARGEST) throw new Error(`${file} has ${size} bytes; it may have ${LARGEST}.`);
