// Bundles the extension (for Node) and the page of evidence (for a webview), with the licences of what they contain.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const common = {
  bundle: true,
  minify: true,
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  outdir: "dist",
};
const built = [
  await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    platform: "node",
    format: "cjs",
    target: "node20",
    external: ["vscode"],
  }),
  await build({
    ...common,
    entryPoints: { evidence: "src/webview/evidence.ts" },
    platform: "browser",
    format: "iife",
    target: "es2022",
  }),
];

const packages = new Set();
for (const input of built.flatMap(({ metafile }) => Object.keys(metafile.inputs))) {
  const folder = /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input)?.[0];
  if (folder !== undefined) packages.add(folder);
}
const notices = [...packages].sort().map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  return `${name} ${version} (${license})\n\n${file === undefined ? "" : readFileSync(join(folder, file), "utf8")}`;
});
writeFileSync("dist/NOTICES.txt", notices.join(`\n${"-".repeat(80)}\n\n`));
