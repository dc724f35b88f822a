import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./chart.css";
import { alone, said } from "../lib/series";

interface ChartProps {
  name: string;
  unit: string;
  series: { label: string }[];
  /** In seconds since 1970. */
  times: number[];
  lines: (number | null)[][];
  /** Milliseconds since 1970. */
  from: number;
  to: number;
  /** When the branch slept, in milliseconds since 1970. */
  asleep?: [number, number][];
  /** Draws what was drawn over; without it nothing happens then. */
  onZoom?: (from: number, to: number) => void;
}

const HEIGHT = 160;
const NEVER: [number, number][] = [];
const DAY = "\n{D} {MMM}";
/** Marks of the time axis by how far they are from each other, in seconds; the day is said where it changes. */
const TIMES: (number | string | null)[][] = [
  [86_400, "{D} {MMM}", null, null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
];
const POINTER = uPlot.sync("metrics");

/** Marks of bytes: KiB, MiB and so on, and not thousands. */
const BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** A colour of the page, which a canvas can't look up by itself. */
function colour(element: Element, name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** How it is drawn, in the colours that the page has now. */
function options(element: HTMLElement, props: Required<ChartProps>, zoom: (from: number, to: number) => void): uPlot.Options {
  const { unit, series, from, to, asleep } = props;
  const [quiet, line] = [colour(element, "--quiet"), colour(element, "--line")];
  const sleep = colour(element, "--asleep-band");
  const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const values = (_: uPlot, marks: number[]) => marks.map((mark) => said(mark, unit));
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: POINTER.key }, drag: { x: true, y: false, setScale: false }, y: false },
    scales: { x: { range: [from / 1000, to / 1000] }, y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      { ...axis, values: TIMES },
      { ...axis, size: 78, ...(unit.startsWith("bytes") && { incrs: BYTES }), values },
    ],
    series: [
      {},
      ...series.map(({ label }, index) => ({
        label,
        stroke: colour(element, `--series-${index + 1}`),
        width: 1.5,
        points: { size: 5, filter: (chart: uPlot, of: number) => alone([...(chart.data[of] ?? [])]) },
      })),
    ],
    hooks: {
      drawClear: [
        ({ ctx, bbox, valToPos }) => {
          ctx.fillStyle = sleep;
          for (const [start, end] of asleep) {
            const left = valToPos(start / 1000, "x", true);
            ctx.fillRect(left, bbox.top, valToPos(end / 1000, "x", true) - left, bbox.height);
          }
        },
      ],
      setSelect: [
        (chart) => {
          const { left, width } = chart.select;
          if (width < 4) return;
          zoom(chart.posToVal(left, "x") * 1000, chart.posToVal(left + width, "x") * 1000);
          chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

export function Chart({ name, unit, series, times, lines, from, to, asleep = NEVER, onZoom = () => {} }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const zoom = useRef(onZoom);
  zoom.current = onZoom;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const props = { name, unit, series, times, lines, from, to, asleep, onZoom };
    const draw = () =>
      new uPlot(
        options(element, props, (from, to) => zoom.current(from, to)),
        [times, ...lines] as uPlot.AlignedData,
        element,
      );
    let chart = draw();
    const again = () => {
      chart.destroy();
      chart = draw();
    };
    const resized = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    const chosen = new MutationObserver(again);
    chosen.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => {
      resized.disconnect();
      chosen.disconnect();
      scheme.removeEventListener("change", again);
      chart.destroy();
    };
  }, [times, lines, from, to, asleep, unit, series]);
  return <div ref={box} className="canvas" role="img" aria-label={`${name} over time; the table has the numbers`} />;
}
