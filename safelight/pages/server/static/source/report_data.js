/**
 * What the pages know, read from inside a report: one file, no server.
 */

import { lowerBound } from "../chart/clock.js";
import { exponential } from "../live/smooth.js";
import { merge } from "../live/spans.js";

/**
 * @typedef {object} ReportData
 * @property {any} run as /api/runs/ID
 * @property {Record<string, import("../live/readings.js").Series>} series whole and fine
 * @property {{step: number[], time: number[]} | null} clock
 * @property {any} heatmap of the loss
 * @property {any} skill the same of the skill
 * @property {Record<string, string>} pictures data: addresses by id
 * @property {number} made seconds since 1970
 */

const COARSE = 900; // spans that are drawn at once

/** @param {ReportData} report @returns {import("./server.js").Source} */
export function reportSource(report) {
  /** @type {Map<string, (number | null)[]>} */
  const smoothed = new Map();

  /** The smoothed curve of all spans, so that no zoom changes it. @param {string} name @param {number} halfLife */
  const smooth = (name, halfLife) => {
    const key = `${name}/${halfLife}`;
    if (!smoothed.has(key)) smoothed.set(key, exponential(report.series[name], halfLife));
    return smoothed.get(key);
  };

  return {
    kind: "report",
    runs: async () => ({ runs: [], time: report.made }),
    run: async () => report.run,
    series: async (_, query) => {
      const series = /** @type {Record<string, any>} */ ({});
      for (const name of query.signals) {
        const whole = report.series[name];
        if (!whole) continue;
        const full = query.smooth ? { ...whole, smooth: smooth(name, query.smooth) } : whole;
        const part = cut(full, query.first, query.last);
        series[name] = merge(part, Math.ceil(part.x.length / (2 * Math.min(query.pixels ?? COARSE, COARSE))));
      }
      return { series, first: query.first ?? 0, last: query.last ?? report.run.cursor, clock: report.clock ?? undefined };
    },
    heatmap: async (_, query) => (query.of === "skill" ? report.skill : report.heatmap),
    compare: async () => ({ settings: {}, runs: [] }),
    picture: (_, picture) => report.pictures[picture.id] ?? "",
    live: () => () => {},
    now: () => report.made,
  };
}

/** @param {any} series @param {number} [first] @param {number} [last] */
function cut(series, first, last) {
  if (first === undefined && last === undefined) return series;
  const from = first === undefined ? 0 : Math.max(0, lowerBound(series.end, first) - 1);
  const to = last === undefined ? series.x.length : lowerBound(series.x, last + 1) + 1;
  return Object.fromEntries(Object.entries(series).map(([key, values]) => [key, values.slice(from, to)]));
}
