/**
 * From where to where the values of some curves go, and the scale that they are drawn in.
 */

import { logarithmic, roundedLinear } from "./scale.js";

/**
 * @typedef {import("../live/readings.js").Series} Series
 * @typedef {{series: Series, errors: Series | undefined, from: number, to: number, band: boolean}} Part `to`: without
 */

/** @param {Part[]} parts @returns {{low: number, high: number, lowestPositive: number}} */
function reach(parts) {
  let low = Infinity, high = -Infinity, lowestPositive = Infinity;
  const see = (/** @type {number | null} */ value) => {
    if (value === null) return;
    if (value < low) low = value;
    if (value > high) high = value;
    if (value > 0 && value < lowestPositive) lowestPositive = value;
  };
  for (const { series, errors, from, to, band } of parts) {
    for (let i = from; i < to; i += 1) {
      see(band ? series.low[i] : series.mean[i]);
      if (band) see(series.high[i]);
      const error = errors?.mean[i], mean = series.mean[i];
      if (error && mean !== null) [mean - error, mean + error].forEach(see);
    }
  }
  return { low, high, lowestPositive };
}

const FAR = 3; // times the highest reading: a level beyond is named at the edge, and the curves keep their room

/**
 * @param {Part[]} parts @param {number[]} levels that are compared with @param {{y?: "log" | "linear", zero?: boolean, bottom?: number}} spec
 * @param {import("./axis.js").Area} area
 */
export function fit(parts, levels, spec, area) {
  let { low, high, lowestPositive } = reach(parts);
  for (const level of levels) {
    if (level > 0) lowestPositive = Math.min(lowestPositive, level);
    if (level <= FAR * Math.max(high, 1)) [low, high] = [Math.min(low, level), Math.max(high, level)];
  }
  if (spec.bottom !== undefined) low = Math.max(low, Math.min(spec.bottom, lowestLate(parts)));
  const wanted = Math.max(2, Math.floor((area.bottom - area.top) / 36));
  if (spec.y === "log" && lowestPositive < Infinity) return logarithmic(lowestPositive, Math.max(high, lowestPositive * 1.0001), area.bottom, area.top, wanted);
  if (low > high) [low, high] = [0, 1];
  if (spec.zero) low = Math.min(0, low);
  return roundedLinear(low, high, area.bottom, area.top, wanted);
}

/** In the newer half of what is seen: how a run begins may be cut off, how it ends may not. @param {Part[]} parts */
function lowestLate(parts) {
  let low = Infinity;
  for (const { series, from, to } of parts) {
    for (let i = from + Math.floor((to - from) / 2); i < to; i += 1) low = Math.min(low, series.mean[i] ?? Infinity);
  }
  return low;
}
