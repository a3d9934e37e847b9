/**
 * The exponential average, as safelight/record/smoothing.py has it: the past fades by steps, debiased, gaps left out.
 */

/**
 * The average after one more reading, until the server is asked again.
 * @param {import("./readings.js").Series} series @param {number} step @param {number | null} value @param {number} halfLife in steps
 * @returns {number | null}
 */
export function continueSmooth(series, step, value, halfLife) {
  const smooth = /** @type {(number | null)[]} */ (series.smooth);
  const place = smooth.length - 1;
  const before = place >= 0 ? smooth[place] : null;
  if (value === null) return before;
  if (before === null || !halfLife) return value;
  const fade = 0.5 ** ((step - series.end[place]) / halfLife);
  const readings = Math.max(1, step - series.x[0]);
  return before + (value - before) * ((1 - fade) / Math.max(1 - fade ** (readings + 1), 1e-9));
}

/**
 * Over spans that stand for their readings: as many as there are steps since the span before, where they are even.
 * @param {import("./readings.js").Series} series @param {number} halfLife in steps @returns {(number | null)[]}
 */
export function exponential(series, halfLife) {
  let weight = 0, mean = 0;
  return series.mean.map((value, place) => {
    const since = place ? series.end[place] - series.end[place - 1] : 0;
    weight *= 0.5 ** (since / halfLife);
    if (value !== null) {
      const added = since || series.end[place] - series.x[place] + 1;
      weight += added;
      mean += (added / weight) * (value - mean);
    }
    return weight > 0 ? mean : null;
  });
}
