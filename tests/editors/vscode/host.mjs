// Runs the tests in the extension host. usage: node host.mjs FOLDER EXTENSION TESTS
import { address, openBrowser, remote, startServer } from "./workbench.mjs";

const [, , folder, extension, tests] = process.argv;
const server = await startServer({ environment: process.env, smoke: true });
const browser = await openBrowser();
let code = 1;
try {
  const page = await browser.newPage();
  const ended = new Promise((resolve) => {
    page.on("close", () => resolve(1));
    setTimeout(() => resolve(1), Number(process.env.PATIENCE ?? 60_000) * 3);
    void page.exposeFunction("codeAutomationExit", (given) => resolve(given));
  });
  await page.exposeFunction("codeAutomationLog", (_, given) => {
    if (String(given[0]).startsWith("test")) console.log(...given);
  });
  const payload = [
    ["extensionDevelopmentPath", remote(server, extension)],
    ["extensionTestsPath", remote(server, tests)],
  ];
  await page.goto(address(server, folder, payload));
  code = await ended;
} finally {
  await browser.close();
  server.stop();
}
process.exit(code);
