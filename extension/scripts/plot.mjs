// Writes kernel_lsp/report/page/plot.min.js: of Observable Plot what `page.js` beside it draws with. `npm run plot`
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { notices } from "./notices.mjs";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
const page = join(here, "../kernel_lsp/report/page");
const used = ["arrow", "barX", "dot", "line", "plot", "rect", "ruleX", "ruleY", "text"];

const built = await build({
  absWorkingDir: here,
  stdin: { contents: `export { ${used.join(", ")} } from "@observablehq/plot";`, resolveDir: here },
  bundle: true,
  minify: true,
  legalComments: "none",
  logLevel: "warning",
  metafile: true,
  format: "iife",
  globalName: "Plot",
  target: "es2022",
  banner: { js: "// Made by extension/scripts/plot.mjs; licences: plot.NOTICES.txt" },
  outfile: join(page, "plot.min.js"),
});
writeFileSync(join(page, "plot.NOTICES.txt"), notices(built));
