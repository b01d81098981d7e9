import {
  BarController,
  BarElement,
  CategoryScale,
  Chart,
  type ChartConfiguration,
  Legend,
  LinearScale,
  LineController,
  LineElement,
  PointElement,
  ScatterController,
  Tooltip,
} from "chart.js";
import type { CaseTiming } from "../protocol";
import { h } from "./elements";

Chart.register(
  BarController,
  BarElement,
  CategoryScale,
  Legend,
  LinearScale,
  LineController,
  LineElement,
  PointElement,
  ScatterController,
  Tooltip,
);

const LONGEST = 28;
const SERIES = [
  "--vscode-charts-blue",
  "--vscode-charts-orange",
  "--vscode-charts-green",
  "--vscode-charts-purple",
  "--vscode-charts-red",
  "--vscode-charts-yellow",
];
const drawn = new Set<() => void>();

/** Draws all plots anew, in the colours of the theme as it is now. */
export function redraw(): void {
  for (const draw of drawn) draw();
}

/** Each case's speedup with its interval. */
export function intervals(cases: CaseTiming[]): HTMLElement {
  const label = `Speedup by case with 95 % intervals: ${cases.map((one) => `${one.case} ${one.speedup.toFixed(3)}`).join("; ")}`;
  return plot(label, 70 + 38 * cases.length, () => ({
    type: "bar",
    data: {
      labels: cases.map((one) => folded(one.case)),
      datasets: [
        {
          type: "line",
          label: "speedup",
          data: cases.map((one) => one.speedup),
          showLine: false,
          ...points("--vscode-foreground", 4),
        },
        {
          type: "bar",
          label: "95 % interval",
          data: cases.map((one) => one.interval),
          backgroundColor: colour(SERIES[0]),
          barThickness: 12,
        },
      ],
    },
    options: {
      ...common(),
      indexAxis: "y",
      scales: {
        x: {
          ...axis("speedup (baseline / candidate)"),
          min: Math.min(0.95, ...cases.map((one) => one.interval[0])),
          grid: {
            color: (context) =>
              colour(context.tick.value === 1 ? "--vscode-foreground" : "--vscode-editorWidget-border"),
          },
        },
        y: { ...axis(), grid: { display: false } },
      },
    },
  }));
}

/** What each block of each case measured, in the order of measuring; those of the confirmation are triangles. */
export function blocks(cases: CaseTiming[]): HTMLElement {
  const label = `Speedup measured by each block in the order of measuring, for ${cases.length} cases`;
  return plot(label, 300, () => ({
    type: "scatter",
    data: {
      datasets: cases.map((one, number) => ({
        label: short(one.case),
        data: one.blocks.map((difference, block) => ({ x: block + 1, y: Math.exp(-difference) })),
        ...points(SERIES[number % SERIES.length], 3),
        pointStyle: one.blocks.map((_, block) =>
          block < one.blocks.length - one.confirmation_blocks ? "circle" : "triangle",
        ),
      })),
    },
    options: {
      ...common(true),
      scales: {
        x: {
          ...axis("block"),
          min: 0,
          max: Math.max(...cases.map((one) => one.blocks.length)) + 1,
          ticks: { ...axis().ticks, precision: 0 },
        },
        y: axis("speedup"),
      },
    },
  }));
}

/** How much of the measured bandwidth each side reaches; null where that was not measured. */
export function roofline(cases: CaseTiming[]): HTMLElement | null {
  const known = cases.filter((one) => one.roofline_share !== null);
  if (known.length === 0) return null;
  const percent = (share: number | null): number | null => (share === null ? null : share * 100);
  const label = `Share of the measured bandwidth: ${known.map((one) => `${one.case} from ${share(one.baseline_roofline_share)} to ${share(one.roofline_share)}`).join("; ")}`;
  return plot(label, 80 + 52 * known.length, () => ({
    type: "bar",
    data: {
      labels: known.map((one) => folded(one.case)),
      datasets: [
        {
          label: "baseline",
          data: known.map((one) => percent(one.baseline_roofline_share)),
          backgroundColor: colour("--vscode-descriptionForeground"),
          barThickness: 14,
        },
        {
          label: "candidate",
          data: known.map((one) => percent(one.roofline_share)),
          backgroundColor: colour(SERIES[0]),
          barThickness: 14,
        },
      ],
    },
    options: {
      ...common(true),
      indexAxis: "y",
      scales: {
        x: { ...axis("% of the measured bandwidth"), min: 0, suggestedMax: 100 },
        y: { ...axis(), grid: { display: false } },
      },
    },
  }));
}

function share(value: number | null): string {
  return value === null ? "unknown" : `${(value * 100).toFixed(0)} %`;
}

function plot(
  label: string,
  height: number,
  configure: () => ChartConfiguration<"bar" | "line" | "scatter", unknown[]>,
): HTMLElement {
  const canvas = h("canvas", { role: "img", "aria-label": label });
  const frame = h("div", { class: "plot" }, canvas);
  frame.style.height = `${height}px`;
  let chart: Chart | undefined;
  drawn.add(() => {
    chart?.destroy();
    chart = new Chart(canvas, configure() as ChartConfiguration);
  });
  return frame;
}

function common(legend = false) {
  const foreground = colour("--vscode-foreground");
  return {
    responsive: true,
    maintainAspectRatio: false,
    animation: false as const,
    plugins: {
      legend: {
        display: legend,
        position: "bottom" as const,
        labels: { color: foreground, usePointStyle: true, boxHeight: 7 },
      },
      tooltip: { boxPadding: 4 },
    },
  };
}

function axis(title?: string) {
  const foreground = colour("--vscode-foreground");
  return {
    ticks: { color: foreground },
    grid: { color: colour("--vscode-editorWidget-border") },
    title: { display: title !== undefined, text: title ?? "", color: foreground },
  };
}

function points(name: string | undefined, radius: number) {
  return {
    pointRadius: radius,
    pointHoverRadius: radius + 2,
    pointBackgroundColor: colour(name),
    pointBorderColor: colour(name),
    borderColor: colour(name),
    backgroundColor: colour(name),
  };
}

function colour(name: string | undefined): string {
  return (
    getComputedStyle(document.documentElement)
      .getPropertyValue(name ?? "--vscode-foreground")
      .trim() || "gray"
  );
}

function short(text: string): string {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST - 1)}…`;
}

/** A label in lines, for an axis. */
function folded(text: string): string[] {
  const middle = text.length <= LONGEST ? -1 : text.lastIndexOf(" ", LONGEST);
  return middle < 0 ? [short(text)] : [text.slice(0, middle), short(text.slice(middle + 1))];
}
