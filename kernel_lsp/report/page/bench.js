"use strict";
// Draws the page's plots from the results that the page carries. Tables beside them say the same without scripts.
(() => {
  const bench = JSON.parse(document.getElementById("bench").textContent);
  const style = { color: "var(--text)", background: "transparent", fontFamily: "inherit", fontSize: "11.5px" };
  const sides = { eager: "var(--after)", "torch.compile": "var(--doubt)", KernelBench: "var(--before)" };
  const short = (text) => (text.length > 44 ? text.slice(0, 43) + "…" : text);

  function draw(id, options) {
    const place = document.getElementById(id);
    if (place !== null) place.replaceChildren(Plot.plot({ style, width: place.clientWidth || 640, ...options() }));
  }

  function speedups() {
    const points = bench.results.flatMap((one) => {
      const name = short(`${one.level} ${one.problem} ${one.run} ${one.index}`);
      return [["eager", one.eager], ["torch.compile", one.compiled]]
        .filter(([, said]) => said !== null && said.speedup !== null)
        .map(([side, said]) => ({ name, side, speedup: said.speedup, low: said.interval[0], high: said.interval[1], verdict: said.verdict }));
    });
    const names = d3.sort([...new Set(points.map((point) => point.name))], (name) => -d3.max(points.filter((p) => p.name === name), (p) => p.speedup));
    return {
      height: 80 + 18 * names.length, marginLeft: Math.max(8, ...names.map((name) => name.length)) * 6.4 + 16, marginRight: 30, marginBottom: 38,
      color: { domain: Object.keys(sides).slice(0, 2), range: Object.values(sides).slice(0, 2), legend: true },
      x: { type: "log", label: "speedup →", grid: true, tickFormat: "~g" },
      y: { label: null, domain: names },
      marks: [
        Plot.ruleX([1], { stroke: "currentColor", strokeOpacity: 0.7 }),
        Plot.ruleY(points, { y: "name", x1: "low", x2: "high", strokeWidth: 5, strokeOpacity: 0.45, stroke: "side" }),
        Plot.dot(points, { y: "name", x: "speedup", r: 4, fill: "side", tip: true, channels: { verdict: "verdict" } }),
      ],
    };
  }

  function fast() {
    const totals = bench.totals;
    const points = [["eager", totals.fast], ["torch.compile", totals.fast_compiled], ["KernelBench", totals.fast_published]]
      .flatMap(([side, shares]) => Object.entries(shares).filter(([, share]) => share !== null).map(([p, share]) => ({ side, p: Number(p), share })));
    return {
      height: 300, marginLeft: 50, marginRight: 20, marginBottom: 42,
      color: { domain: Object.keys(sides), range: Object.values(sides), legend: true },
      x: { label: "p →", ticks: 5 },
      y: { label: "↑ fast_p", grid: true, domain: [0, 1], tickFormat: "%" },
      marks: [
        Plot.line(points, { x: "p", y: "share", stroke: "side", z: "side" }),
        Plot.dot(points, { x: "p", y: "share", fill: "side", r: 4, tip: true }),
      ],
    };
  }

  const plots = { speedups, fast };
  const all = () => Object.entries(plots).forEach(([id, options]) => draw(`plot-${id}`, options));
  all();
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(all, 150); });
})();
