"use strict";
// Draws the page's plots from the verdict that the page carries. Tables beside them say the same without scripts.
(() => {
  const verdict = JSON.parse(document.getElementById("verdict").textContent);
  const evidence = verdict.evidence;
  const number = (x) => Number(x); // figures that are not finite come as texts
  const colour = { Baseline: "var(--before)", Candidate: "var(--after)" };
  const style = { color: "var(--text)", background: "transparent", fontFamily: "inherit", fontSize: "11.5px" };
  const short = (text) => (text.length > 44 ? text.slice(0, 43) + "…" : text);
  const seconds = (s) => (s >= 1 ? s.toFixed(2) + " s" : (s * 1e3).toFixed(s >= 0.01 ? 0 : 1) + " ms");
  const bytes = (b) => d3.format("~s")(b) + "B";
  const series = ["#1b7fd3", "#e07b00", "#1f9d55", "#a259c9", "#d2476b", "#8a7a00", "#0f9aa8", "#80604d"];

  function draw(id, options) {
    const place = document.getElementById(id);
    if (place !== null) place.replaceChildren(Plot.plot({ style, width: place.clientWidth || 640, ...options() }));
  }

  function intervals() {
    const rows = verdict.cases.map((one) => ({ ...one, name: short(one.case), low: one.interval[0], high: one.interval[1] }));
    const all = "all cases";
    if (verdict.speedup !== null)
      rows.push({ name: all, speedup: verdict.speedup, low: verdict.interval[0], high: verdict.interval[1] });
    const delta = evidence.settings.delta ?? 0;
    return {
      height: 60 + 30 * rows.length, marginLeft: Math.max(...rows.map((row) => row.name.length)) * 6.4 + 16, marginRight: 70, marginBottom: 38,
      x: { label: "speedup →", grid: true, nice: true, zero: false },
      y: { label: null, domain: rows.map((row) => row.name) },
      marks: [
        Plot.rect([{}], { x1: 1 - delta, x2: 1 + delta, fill: "currentColor", fillOpacity: 0.07 }),
        Plot.ruleX([1], { stroke: "currentColor", strokeOpacity: 0.7 }),
        Plot.ruleY(rows, { y: "name", x1: "low", x2: "high", strokeWidth: 5, strokeOpacity: 0.45, stroke: "var(--after)" }),
        Plot.dot(rows, { y: "name", x: "speedup", r: (row) => (row.name === all ? 6 : 4), fill: "var(--after)" }),
        Plot.text(rows, { y: "name", frameAnchor: "right", dx: 64, textAnchor: "end", text: (row) => row.speedup.toFixed(3) + "x" }),
      ],
    };
  }

  function blocks() {
    const points = verdict.cases.flatMap((one) =>
      one.blocks.map((log, index) => ({
        case: short(one.case), block: index + 1, speedup: Math.exp(-number(log)),
        fresh: index >= one.blocks.length - one.confirmation_blocks,
      })));
    const one = verdict.cases[0];
    const first = one.blocks.length - one.confirmation_blocks;
    const between = one.confirmation_blocks ? [first + 0.5] : [];
    return {
      height: 320, marginLeft: 50, marginRight: 20, marginBottom: 42,
      color: { domain: [...new Set(points.map((point) => point.case))], range: series, legend: true },
      x: { label: "block, in the order of measurement →", ticks: 8, tickFormat: (d) => (Number.isInteger(d) ? String(d) : "") },
      y: { label: "↑ speedup", grid: true, nice: true },
      marks: [
        Plot.ruleY([1], { stroke: "currentColor", strokeOpacity: 0.7 }),
        Plot.ruleX(between, { stroke: "currentColor", strokeDasharray: "4 3", strokeOpacity: 0.6 }),
        Plot.text(between, { x: (d) => d, frameAnchor: "top", dx: 6, dy: 2, textAnchor: "start", text: () => "fresh processes" }),
        Plot.line(points, { x: "block", y: "speedup", z: "case", stroke: "case", strokeOpacity: 0.35 }),
        Plot.dot(points, { x: "block", y: "speedup", stroke: "case", fill: (p) => p.case, fillOpacity: (p) => (p.fresh ? 0.9 : 0.1), r: 3,
          tip: true, channels: { case: "case" } }),
      ],
    };
  }

  function roofline() {
    const copy = evidence.device.copy_bandwidth_gbs;
    const rows = verdict.cases.map((one) => {
      const after = one.bytes_moved / one.candidate_us / 1e3;
      return {
        case: short(one.case), bytes: one.bytes_moved, before: one.bytes_moved / one.baseline_us / 1e3, after,
        roof: one.roofline_share === null ? copy : after / number(one.roofline_share),
      };
    });
    const points = rows.flatMap((row) => [
      { ...row, side: "Baseline", rate: row.before }, { ...row, side: "Candidate", rate: row.after }]);
    const roofs = rows.map((row) => row.roof);
    const least = Math.min(...points.map((point) => point.rate), Math.min(...roofs) / 10);
    const sizes = rows.map((row) => row.bytes);
    return {
      height: 320, marginLeft: 60, marginRight: 20, marginBottom: 42,
      color: { domain: Object.keys(colour), range: Object.values(colour), legend: true },
      x: { type: "log", label: "bytes that have to be moved →", tickFormat: bytes, ticks: 3,
        domain: [Math.min(...sizes) / 2, Math.max(...sizes) * 2] },
      y: { type: "log", label: "↑ GB/s reached", grid: true, tickFormat: "~s", ticks: 5, domain: [least / 1.5, Math.max(...roofs, ...points.map((p) => p.rate)) * 1.6] },
      marks: [
        Plot.ruleY(rows, { y: "roof", x1: (row) => row.bytes / 1.6, x2: (row) => row.bytes * 1.6, stroke: "var(--bad)", strokeWidth: 1.5 }),
        Plot.text(rows, { x: "bytes", y: "roof", dy: -8, fill: "var(--bad)", text: (row) => Math.round(row.roof).toLocaleString("en") + " GB/s" }),
        Plot.arrow(rows, { x1: "bytes", x2: "bytes", y1: "before", y2: "after", stroke: "currentColor", strokeOpacity: 0.4, headLength: 7, inset: 5 }),
        Plot.dot(points, { x: "bytes", y: "rate", stroke: "side", fill: (p) => (p.side === "Candidate" ? colour.Candidate : "transparent"), r: 5,
          tip: true, channels: { case: "case" } }),
      ],
    };
  }

  function errors() {
    const floor = 1e-3;
    const points = evidence.errors.map((one) => ({
      case: short(one.case), family: one.family,
      baseline: Math.max(number(one.baseline_max), floor), candidate: Math.max(number(one.candidate_max), floor),
    })).filter((point) => Number.isFinite(point.baseline) && Number.isFinite(point.candidate));
    const values = points.flatMap((point) => [point.baseline, point.candidate]);
    const low = Math.min(...values) / 2, high = Math.max(...values, 8) * 2;
    const factor = evidence.settings.factor ?? 2;
    const line = (times) => [{ x: low, y: low * times }, { x: high, y: high * times }];
    const bound = [{ x: low, y: 4 }, { x: 4 / factor, y: 4 }, { x: high, y: high * factor }];
    return {
      height: 320, marginLeft: 55, marginRight: 20, marginBottom: 42,
      x: { type: "log", label: "baseline's largest error, eps →", domain: [low, high], ticks: 5, tickFormat: "~g" },
      y: { type: "log", label: "↑ candidate's largest error, eps", grid: true, domain: [low, high], ticks: 5, tickFormat: "~g" },
      marks: [
        Plot.line(bound, { clip: true, x: "x", y: "y", stroke: "var(--bad)", strokeWidth: 1.5 }),
        Plot.line(line(1), { clip: true, x: "x", y: "y", stroke: "currentColor", strokeOpacity: 0.4, strokeDasharray: "4 3" }),
        Plot.dot(points, { x: "baseline", y: "candidate", fill: "var(--after)", fillOpacity: 0.6, r: 4, tip: true,
          channels: { case: "case", inputs: "family" } }),
      ],
    };
  }

  function stages() {
    const rows = Object.entries(verdict.seconds).filter(([name, spent]) => name !== "total" && spent > 1e-3)
      .map(([stage, spent]) => ({ stage, spent }));
    return {
      height: 55 + 24 * rows.length, marginLeft: 110, marginRight: 70, marginBottom: 38,
      x: { label: "seconds →", grid: true }, y: { label: null, domain: rows.map((row) => row.stage) },
      marks: [
        Plot.barX(rows, { y: "stage", x: "spent", fill: "var(--after)", fillOpacity: 0.7, insetTop: 3, insetBottom: 3 }),
        Plot.text(rows, { y: "stage", x: "spent", dx: 6, textAnchor: "start", text: (row) => seconds(row.spent) }),
      ],
    };
  }

  const plots = { intervals, blocks, roofline, errors, stages };
  const all = () => Object.entries(plots).forEach(([id, options]) => draw(`plot-${id}`, options));
  all();
  let waiting = 0;
  addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(all, 150); });
})();
