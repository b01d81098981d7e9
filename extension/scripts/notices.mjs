// The licences of the packages that a bundle contains.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** One text with the licence of each package whose files esbuild says that it read. */
export function notices(built) {
  const packages = new Set();
  for (const input of Object.keys(built.metafile.inputs)) {
    const folder = /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input)?.[0];
    if (folder !== undefined) packages.add(folder);
  }
  const texts = [...packages].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
    return `${name} ${version} (${license})\n\n${file === undefined ? "" : readFileSync(join(folder, file), "utf8")}`;
  });
  return texts.join(`\n${"-".repeat(80)}\n\n`);
}
