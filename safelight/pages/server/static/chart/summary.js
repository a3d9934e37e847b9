/**
 * Curves in words and in a table, for those who do not see them.
 */

import { count, reading } from "../words.js";
import { lowerBound } from "./clock.js";

/** @typedef {import("../live/readings.js").Series} Series */

/** Place of the span that holds a step, or lies nearest. @param {Series} series @param {number} step @returns {number | null} */
export function nearest(series, step) {
  if (!series.x.length) return null;
  const after = Math.min(lowerBound(series.end, step), series.x.length - 1);
  if (after > 0 && step - series.end[after - 1] < series.x[after] - step) return after - 1;
  return after;
}

/** Place of the span that tells of a step; null before the first reading and after the last, where nothing was measured. @param {Series} series @param {number} step @returns {number | null} */
export function measuredAt(series, step) {
  const last = series.x.length - 1;
  if (last < 0) return null;
  const half = last ? (series.x[last] - series.x[0]) / last / 2 : 0; // a reading stands for the steps around it
  const from = series.x[0] - half, to = series.end[last] + half;
  return step < from || step > to ? null : nearest(series, step);
}

/** One sentence. @param {string} label @param {Series} series @param {string} [unit] @param {string} [none] what not finite means where it is no fault */
export function describe(label, series, unit, none) {
  const finite = series.mean.filter((value) => value !== null);
  const bad = series.nonfinite.reduce((sum, each) => sum + each, 0);
  const not = bad && !none ? ` ${count(bad)} ${bad === 1 ? "reading is" : "readings are"} not finite.` : "";
  if (!finite.length && none) return `${label}: ${none}.`;
  if (!finite.length) return `${label}: no finite reading.${not}`;
  let low = Infinity, high = -Infinity, at = 0;
  series.low.forEach((value, place) => {
    if (value !== null && value < low) [low, at] = [value, series.x[place]];
    high = Math.max(high, series.high[place] ?? -Infinity);
  });
  const span = `steps ${count(series.x[0])} to ${count(series.end[series.end.length - 1])}`;
  const ends = `from ${reading(finite[0], unit)} to ${reading(finite[finite.length - 1], unit)}`;
  return `${label}, ${span}: ${ends}, lowest ${reading(low, unit)} at step ${count(at)}, highest ${reading(high, unit)}.${not}`;
}

/** About twenty rows, evenly spread, the last one always. @param {Series[]} all @param {string} [unit] */
export function tabulate(all, unit) {
  const lead = all.reduce((longest, each) => (each.x.length > longest.x.length ? each : longest));
  const apart = Math.max(1, Math.ceil(lead.x.length / 20));
  const places = lead.x.map((_, place) => place).filter((place) => (lead.x.length - 1 - place) % apart === 0);
  return places.map((place) => [
    count(lead.x[place]),
    ...all.flatMap((series) => {
      const here = nearest(series, lead.x[place]);
      if (here === null) return ["–", "–", "–", "–"];
      return [reading(series.mean[here], unit), reading(series.low[here], unit), reading(series.high[here], unit), count(series.nonfinite[here])];
    }),
  ]);
}
