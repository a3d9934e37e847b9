/**
 * Spans of steps put together, with nothing lost of their lowest, highest and not finite readings.
 */

/** @typedef {import("./readings.js").Series} Series */

/** So many neighbours become one. @param {Series} series @param {number} together @returns {Series} */
export function merge(series, together) {
  if (together <= 1) return series;
  const groups = Math.ceil(series.x.length / together);
  /** @type {Series} */
  const found = { x: [], end: [], low: [], high: [], mean: [], nonfinite: [], ...(series.smooth ? { smooth: [] } : {}) };
  for (let group = 0; group < groups; group += 1) append(found, series, group * together, Math.min((group + 1) * together, series.x.length));
  return found;
}

/** @param {Series} into @param {Series} from @param {number} begin @param {number} end without */
function append(into, from, begin, end) {
  let low = Infinity, high = -Infinity, sum = 0, weight = 0, bad = 0;
  for (let i = begin; i < end; i += 1) {
    bad += from.nonfinite[i];
    const mean = from.mean[i];
    if (mean === null) continue;
    const steps = from.end[i] - from.x[i] + 1;
    low = Math.min(low, Number(from.low[i]));
    high = Math.max(high, Number(from.high[i]));
    sum += mean * steps;
    weight += steps;
  }
  into.x.push(from.x[begin]);
  into.end.push(from.end[end - 1]);
  into.low.push(weight ? low : null);
  into.high.push(weight ? high : null);
  into.mean.push(weight ? sum / weight : null);
  into.nonfinite.push(bad);
  into.smooth?.push(from.smooth?.[end - 1] ?? null);
}

/** What came later, behind what is known. @param {Series} known @param {Series} later @returns {Series} */
export function join(known, later) {
  const last = known.end[known.end.length - 1] ?? -1;
  const from = later.x.findIndex((step) => step > last);
  if (from < 0) return known;
  const parts = Object.keys(known).map((key) => [key, [.../** @type {any} */ (known)[key], .../** @type {any} */ (later)[key].slice(from)]]);
  return Object.fromEntries(parts);
}
