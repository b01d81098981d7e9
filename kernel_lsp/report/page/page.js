"use strict";
// Draws the plots that the page carries as data, and passes on what a reader asks of the editor that shows the page.
(() => {
  const nonce = document.currentScript.nonce;
  const style = { color: "var(--text)", background: "transparent", fontFamily: "inherit", fontSize: "11.5px" };
  const inks = { text: "currentColor", baseline: "var(--before)", candidate: "var(--after)", doubt: "var(--doubt)", limit: "var(--bad)" };
  const PALETTE = 8;

  // How each shape is drawn at the points of a mark; `ink` is a colour, or the channel that gives one.
  const shapes = {
    dot: (points, ink, mark) => Plot.dot(points, { x: "x", y: "y", r: mark.emphasis ? 6 : 4, stroke: ink, fill: ink,
      fillOpacity: (point) => (point.filled ? 0.85 : 0.08), ...(points.some((point) => point.text) && { title: "text", tip: true }) }),
    range: (points, ink) => Plot.ruleY(points, { y: "y", x1: "x", x2: "x2", stroke: ink, strokeWidth: 5, strokeOpacity: 0.45 }),
    band: (points) => Plot.rect(points, { x1: "x", x2: "x2", fill: "currentColor", fillOpacity: 0.07 }),
    bar: (points, ink) => Plot.barX(points, { y: "y", x: "x", fill: ink, fillOpacity: 0.7, insetTop: 3, insetBottom: 3 }),
    line: (points, ink, mark) => Plot.line(points, { x: "x", y: "y", z: "series", stroke: ink, clip: true,
      strokeOpacity: ink === "series" || mark.dashed ? 0.4 : 1, ...dashes(mark) }),
    rule: (points, ink, mark) => points.map((point) => {
      const look = { stroke: ink, strokeOpacity: ink === "currentColor" ? 0.65 : 1, ...dashes(mark) };
      if (point.y === null) return Plot.ruleX([point.x], look);
      return point.x2 === null ? Plot.ruleY([point.y], look) : Plot.ruleY([point], { y: "y", x1: "x", x2: "x2", strokeWidth: 1.5, ...look });
    }),
    arrow: (points) => Plot.arrow(points, { x1: "x", y1: "y", x2: "x2", y2: "y2", stroke: "currentColor", strokeOpacity: 0.4, headLength: 7, inset: 5 }),
    label: (points, ink) => points.map((point) => {
      const places = point.x === null ? { y: "y", frameAnchor: "right", dx: EDGE - 6, textAnchor: "end" }
        : point.y === null ? { x: "x", frameAnchor: "top", dx: 6, dy: 2, textAnchor: "start" } : { x: "x", y: "y", dy: -8 };
      return Plot.text([point], { ...places, text: "text", fill: ink });
    }),
  };
  const EDGE = 70; // pixels at the right for labels
  const dashes = (mark) => (mark.dashed ? { strokeDasharray: "4 3" } : {});

  function axis(given, grid, short) {
    if (given.names.length > 0) return { label: null, domain: given.names, tickFormat: short };
    const domain = given.low !== null && given.high !== null ? { domain: [given.low, given.high] } : { nice: !given.log };
    return { label: given.label, grid, type: given.log ? "log" : "linear", ...domain,
      ...(given.ticks !== null && { ticks: given.ticks }), ...(given.format !== null && { tickFormat: given.format }) };
  }

  function options(plot, width) {
    const longest = Math.min(44, Math.max(12, Math.floor(width / 18)));
    const short = (text) => (text.length > longest ? text.slice(0, longest - 1) + "…" : text);
    const names = plot.y.names;
    const labelled = plot.marks.some((mark) => mark.shape === "label" && mark.points.some((point) => point.x === null));
    const marks = plot.marks.flatMap((mark) => {
      const ink = mark.points.some((point) => point.series !== null) ? "series" : inks[mark.ink];
      return shapes[mark.shape](mark.points, ink, mark);
    });
    const coloured = {
      domain: plot.series.map(([name]) => name), legend: true, tickFormat: short,
      range: plot.series.map(([, ink], number) => (ink === null ? `var(--series-${(number % PALETTE) + 1})` : inks[ink])),
    };
    return {
      style, width, marks,
      height: names.length > 0 ? 55 + 28 * names.length : 320,
      marginLeft: names.length > 0 ? Math.max(...names.map((name) => short(name).length)) * 6.8 + 16 : 55,
      marginRight: labelled ? EDGE : 24, marginBottom: 40,
      x: axis(plot.x, names.length > 0, short), y: axis(plot.y, true, short),
      ...(plot.series.length > 0 && { color: coloured }),
    };
  }

  const plots = JSON.parse(document.getElementById("plots").textContent);
  function draw() {
    for (const plot of plots) {
      const place = document.getElementById(`plot-${plot.name}`);
      const drawn = Plot.plot(options(plot, place.clientWidth || 640));
      for (const sheet of drawn.querySelectorAll("style")) sheet.nonce = nonce; // before the page looks at it
      place.replaceChildren(drawn);
    }
  }
  draw();
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 150); });

  if (typeof acquireVsCodeApi !== "function") return;
  const editor = acquireVsCodeApi();
  addEventListener("click", ({ target }) => {
    const asks = target.closest("[data-asks]")?.dataset.asks;
    if (asks) editor.postMessage({ asks, text: target.closest("div")?.querySelector("pre")?.textContent ?? "" });
  });
  const instructions = document.getElementById("instructions");
  const state = Object.assign(document.createElement("p"), { className: "quiet", textContent: "Both versions are compiled and compared ..." });
  instructions.append(state);
  addEventListener("message", ({ data }) => {
    if (data.html !== undefined) instructions.outerHTML = data.html;
    else state.textContent = data.problem;
  });
  editor.postMessage({ asks: "instructions", text: "" });
})();
