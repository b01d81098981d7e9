// Bundles the extension, with the licences of what it contains.
import { writeFileSync } from "node:fs";
import { build } from "esbuild";
import { notices } from "./notices.mjs";

const built = await build({
  bundle: true,
  minify: true,
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  outdir: "dist",
  entryPoints: ["src/extension.ts"],
  platform: "node",
  format: "cjs",
  target: "node20",
  external: ["vscode"],
});
writeFileSync("dist/NOTICES.txt", notices(built));
