import * as vscode from "vscode";
import { holdsKernels } from "./files";
import type { KernelCode, MachineInstruction } from "./protocol";
import type { Server } from "./server";

const SCHEME = "kernel-lsp-sass";
const PAUSE_MS = 600;
const COLOURS: Record<string, string> = {
  "global memory": "charts.blue",
  "shared memory": "charts.purple",
  "local memory": "charts.red",
  "tensor cores": "charts.green",
  atomics: "charts.orange",
  barriers: "charts.yellow",
  "shuffles and votes": "charts.yellow",
  "special functions": "charts.purple",
};

/** A listing of machine code and what it was made from, and which of its lines came from which line of the source. */
interface Listing {
  text: string;
  /** Each kernel with the first and the last of its lines. */
  kernels: vscode.DocumentSymbol[];
  /** The source's line, from 1, of each line of the listing. */
  lines: (number | null)[];
  /** Where the opcodes that matter stand, by role. */
  roles: Map<string, vscode.Range[]>;
}

/** Machine code, PTX and TTGIR beside their source: the cursor in the one marks what belongs to it in the other. */
export class MachineCodeView implements vscode.TextDocumentContentProvider, vscode.Disposable {
  readonly #changed = new vscode.EventEmitter<vscode.Uri>();
  readonly onDidChange = this.#changed.event;
  readonly #listings = new Map<string, Listing>();
  readonly #linked = vscode.window.createTextEditorDecorationType({
    isWholeLine: true,
    backgroundColor: new vscode.ThemeColor("editor.wordHighlightBackground"),
    overviewRulerColor: new vscode.ThemeColor("editorOverviewRuler.wordHighlightForeground"),
  });
  readonly #roles = new Map(
    Object.entries(COLOURS).map(([role, colour]) => [
      role,
      vscode.window.createTextEditorDecorationType({ color: new vscode.ThemeColor(colour), fontWeight: "bold" }),
    ]),
  );
  readonly #subscriptions: vscode.Disposable[];
  #pause: NodeJS.Timeout | undefined;

  constructor(readonly server: Server) {
    this.#subscriptions = [
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.window.onDidChangeTextEditorSelection((event) => {
        this.#link(event);
      }),
      vscode.window.onDidChangeVisibleTextEditors(() => {
        this.#colour();
      }),
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        if (document.uri.scheme === SCHEME) this.#colour();
        else this.#refreshSoon(document);
      }),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => {
        if (uri.scheme === SCHEME) this.#listings.delete(uri.toString());
      }),
      vscode.languages.registerHoverProvider(
        { scheme: SCHEME },
        { provideHover: (document, at) => this.#hover(document, at) },
      ),
      vscode.languages.registerDocumentSymbolProvider(
        { scheme: SCHEME },
        { provideDocumentSymbols: ({ uri }) => this.#listings.get(uri.toString())?.kernels ?? [] },
      ),
    ];
  }

  dispose(): void {
    clearTimeout(this.#pause);
    for (const one of [...this.#subscriptions, this.#changed, this.#linked, ...this.#roles.values()]) one.dispose();
  }

  /** Shows the machine code of a file beside it, at a line of the source, a kernel, or else where the cursor is. */
  async show(
    source: vscode.Uri,
    place: { line?: number | undefined; kernel?: string | undefined } = {},
  ): Promise<void> {
    const document = await vscode.workspace.openTextDocument(address(source));
    const cursor = vscode.window.activeTextEditor?.selection.active.line ?? 0;
    const at = place.line ?? this.#firstLine(document.uri, place.kernel) ?? cursor;
    const left = await vscode.window.showTextDocument(source, { viewColumn: vscode.ViewColumn.One, preview: false });
    left.selection = new vscode.Selection(at, 0, at, 0);
    left.revealRange(left.selection, vscode.TextEditorRevealType.InCenterIfOutsideViewport);
    await vscode.window.showTextDocument(document, {
      viewColumn: vscode.ViewColumn.Beside,
      preview: false,
      preserveFocus: true,
    });
    this.#colour();
    this.#mark(left);
  }

  async provideTextDocumentContent(uri: vscode.Uri): Promise<string> {
    const source = sourceOf(uri);
    try {
      const answer = await this.server.request("machineCode", {
        textDocument: { uri: source.toString() },
      });
      const listing = list(answer.kernels);
      this.#listings.set(uri.toString(), listing);
      return listing.text;
    } catch (error) {
      const before = this.#listings.get(uri.toString());
      const why = error instanceof Error ? error.message : String(error);
      return before === undefined ? `// ${why}\n` : before.text; // while its author types it may not compile
    }
  }

  /** The first line of a source, from 0, of which a kernel's listing has machine code. */
  #firstLine(uri: vscode.Uri, kernel: string | undefined): number | undefined {
    const listing = this.#listings.get(uri.toString());
    const range = listing?.kernels.find(({ name }) => name === kernel)?.range;
    if (listing === undefined || range === undefined) return undefined;
    const line = listing.lines.slice(range.start.line, range.end.line).find((one) => one !== null);
    return line === undefined ? undefined : line - 1;
  }

  #refreshSoon(document: vscode.TextDocument): void {
    if (!this.#listings.has(address(document.uri).toString()) || !holdsKernels(document)) return;
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => {
      this.#changed.fire(address(document.uri));
    }, PAUSE_MS);
  }

  #link({ textEditor, kind }: vscode.TextEditorSelectionChangeEvent): void {
    if (kind !== undefined) this.#mark(textEditor); // not where it was moved from here
  }

  #mark(from: vscode.TextEditor): void {
    const here = from.document.uri;
    const isListing = here.scheme === SCHEME;
    const listing = this.#listings.get((isListing ? here : address(here)).toString());
    const other = vscode.window.visibleTextEditors.find(
      ({ document }) => document.uri.toString() === (isListing ? sourceOf(here) : address(here)).toString(),
    );
    if (listing === undefined || other === undefined) return;
    const cursor = from.selection.active.line;
    const line = isListing ? listing.lines[cursor] : cursor + 1;
    const inListing = listing.lines.flatMap((one, number) => (one !== null && one === line ? [number] : []));
    const inSource = line === null || line === undefined ? [] : [line - 1];
    const [mine, theirs] = isListing ? [inListing, inSource] : [inSource, inListing];
    from.setDecorations(this.#linked, mine.map(whole));
    other.setDecorations(this.#linked, theirs.map(whole));
    const [first] = theirs;
    if (first !== undefined) other.revealRange(whole(first), vscode.TextEditorRevealType.InCenterIfOutsideViewport);
  }

  #colour(): void {
    for (const editor of vscode.window.visibleTextEditors) {
      const listing = this.#listings.get(editor.document.uri.toString());
      if (listing === undefined) continue;
      for (const [role, decoration] of this.#roles) editor.setDecorations(decoration, listing.roles.get(role) ?? []);
    }
  }

  #hover(document: vscode.TextDocument, at: vscode.Position): vscode.Hover | undefined {
    const listing = this.#listings.get(document.uri.toString());
    for (const [role, ranges] of listing?.roles ?? []) {
      const range = ranges.find((one) => one.contains(at));
      if (range !== undefined) return new vscode.Hover(role, range);
    }
    return undefined;
  }
}

function list(kernels: KernelCode[]): Listing {
  const rows: string[] = [];
  const lines: (number | null)[] = [];
  const roles = new Map<string, vscode.Range[]>();
  const symbols: vscode.DocumentSymbol[] = [];
  const put = (text: string, line: number | null = null): void => {
    rows.push(text);
    lines.push(line);
  };
  for (const kernel of kernels) {
    const peak = Math.max(...kernel.instructions.map((one) => one.live));
    const about = `${kernel.instructions.length} instructions on ${kernel.arch}, at most ${peak} registers live`;
    const first = rows.length;
    put(`//line  addr live   ${kernel.name}`); // stays in sight, see editor.stickyScroll
    put(`// ${about}`);
    put("//                 | in an innermost loop");
    for (const one of kernel.instructions) {
      for (const label of one.labels) put(`${label}:`);
      const [before, opcode, after] = parts(one);
      if (one.role !== null) {
        const found = roles.get(one.role) ?? [];
        found.push(new vscode.Range(rows.length, before.length, rows.length, before.length + opcode.length));
        roles.set(one.role, found);
      }
      put(before + opcode + after, one.line);
    }
    const symbol = symbolOf(kernel.name, about, first, rows.length - 1);
    symbols.push(symbol);
    put("");
    for (const made of kernel.intermediate) {
      const start = rows.length;
      put(`//line  ${kernel.name}: ${made.name}`);
      for (const one of made.lines) put(`${String(one.line ?? "").padStart(5)} ${one.text}`, one.line);
      symbol.range = new vscode.Range(first, 0, rows.length - 1, 0);
      symbol.children.push(symbolOf(made.name, "", start, rows.length - 1));
      put("");
    }
  }
  return { text: rows.join("\n"), kernels: symbols, lines, roles };
}

function symbolOf(name: string, about: string, first: number, last: number): vscode.DocumentSymbol {
  const all = new vscode.Range(first, 0, last, 0);
  return new vscode.DocumentSymbol(name, about, vscode.SymbolKind.Function, all, whole(first));
}

function parts(one: MachineInstruction): [string, string, string] {
  const line = one.line === null ? "" : String(one.line);
  const offset = one.offset.toString(16).padStart(4, "0");
  const guard = one.guard === "" ? "" : `@${one.guard}`;
  const before = `${line.padStart(5)} ${offset.padStart(5)} ${String(one.live).padStart(4)} ${one.looped ? "|" : " "}${guard.padStart(5)} `;
  return [before, one.opcode, one.operands === "" ? "" : ` ${one.operands}`];
}

function address(source: vscode.Uri): vscode.Uri {
  return vscode.Uri.from({ scheme: SCHEME, path: `${source.path}.nvsass`, query: source.toString() });
}

function sourceOf(listing: vscode.Uri): vscode.Uri {
  return vscode.Uri.parse(listing.query);
}

function whole(line: number): vscode.Range {
  return new vscode.Range(line, 0, line, 0);
}
