/** Elements without HTML in strings: nothing that a verdict holds can become markup. */

type Child = Node | string | number | null | undefined;

/** An element with attributes and children; null and undefined children are left out. */
export function h<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Record<string, string | boolean> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** A table; columns after the first hold figures unless `words` is set. It scrolls by itself where it is too wide. */
export function table(caption: string, head: string[], rows: Child[][], words = false): HTMLElement {
  const cell = (tag: "td" | "th", child: Child, column: number): HTMLElement =>
    h(tag, { ...(column > 0 && !words ? { class: "figure" } : {}), ...(tag === "th" ? { scope: "col" } : {}) }, child);
  return h(
    "div",
    { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...head.map((text, column) => cell("th", text, column)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((child, column) => cell("td", child, column))))),
    ),
  );
}

/** A part of the page with its heading. */
export function section(title: string, ...children: Child[]): HTMLElement {
  return h("section", {}, h("h2", {}, title), ...children);
}

/** What is shown only when it is opened. */
export function more(title: string, ...children: Child[]): HTMLElement {
  return h("details", {}, h("summary", {}, title), ...children);
}
