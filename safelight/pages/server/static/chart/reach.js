/**
 * From where to where the values of some curves go.
 */

/**
 * @typedef {import("../live/readings.js").Series} Series
 * @typedef {{series: Series, errors: Series | undefined, from: number, to: number, band: boolean}} Part `to`: without
 */

/** @param {Part[]} parts @returns {{low: number, high: number, lowestPositive: number}} */
export function reach(parts) {
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
