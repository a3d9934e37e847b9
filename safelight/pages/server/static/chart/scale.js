/**
 * From values to pixels and back, and where ticks stand.
 */

/**
 * @typedef {object} Scale
 * @property {(value: number) => number} toPixel
 * @property {(pixel: number) => number} toValue
 * @property {number[]} ticks
 */

/** @param {number} low @param {number} high @param {number} from pixel of low @param {number} to @param {number} wanted ticks @returns {Scale} */
export function linear(low, high, from, to, wanted) {
  if (high <= low) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) * 0.1, low + Math.abs(low) * 0.1];
  const step = niceStep((high - low) / Math.max(1, wanted));
  const factor = (to - from) / (high - low);
  return {
    toPixel: (value) => from + (value - low) * factor,
    toValue: (pixel) => low + (pixel - from) / factor,
    ticks: multiples(step, low, high),
  };
}

/** Widened to whole ticks, so that a live chart seldom moves. @param {number} low @param {number} high @param {number} from @param {number} to @param {number} wanted */
export function roundedLinear(low, high, from, to, wanted) {
  if (high - low <= Math.abs(high) * 1e-9) [low, high] = high === 0 ? [0, 1] : [Math.min(high * 0.9, high * 1.1), Math.max(high * 0.9, high * 1.1)];
  const step = niceStep((high - low) / Math.max(1, wanted));
  return linear(Math.floor(low / step + 1e-9) * step, Math.ceil(high / step - 1e-9) * step, from, to, wanted);
}

/** What is not above zero stands at the lower edge. @param {number} low @param {number} high @param {number} from @param {number} to @param {number} wanted @returns {Scale} */
export function logarithmic(low, high, from, to, wanted) {
  const pad = Math.max(0.02, Math.log10(high / low) * 0.05);
  const bottom = Math.log10(low) - pad, top = Math.log10(high) + pad;
  const factor = (to - from) / (top - bottom);
  return {
    toPixel: (value) => (value > 0 ? from + (Math.max(bottom, Math.log10(value)) - bottom) * factor : from),
    toValue: (pixel) => 10 ** (bottom + (pixel - from) / factor),
    ticks: logTicks(bottom, top, wanted),
  };
}

/** @param {number} bottom @param {number} top powers of ten @param {number} wanted */
function logTicks(bottom, top, wanted) {
  const decades = top - bottom;
  if (decades < 0.6) return multiples(niceStep((10 ** top - 10 ** bottom) / wanted), 10 ** bottom, 10 ** top);
  const parts = decades <= 1.6 ? [1, 2, 3, 5, 7] : decades <= 3.2 ? [1, 3] : [1];
  const apart = Math.max(1, Math.ceil(decades / Math.max(2, wanted)));
  const found = [];
  for (let power = Math.floor(bottom); power <= Math.ceil(top); power += 1) {
    if (parts.length === 1 && power % apart) continue;
    for (const part of parts) {
      const tick = part * 10 ** power;
      if (Math.log10(tick) >= bottom && Math.log10(tick) <= top) found.push(Number(tick.toPrecision(3)));
    }
  }
  return found;
}

/** 1, 2 or 5 times a power of ten, not below. @param {number} rough */
export function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const part = rough / power;
  return (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10) * power;
}

/** @param {number} step @param {number} low @param {number} high */
function multiples(step, low, high) {
  const found = [];
  const end = high + step * 1e-6;
  for (let i = Math.ceil(low / step - 1e-6); i * step <= end && found.length < 60; i += 1) found.push(Number((i * step).toPrecision(10)));
  return found;
}

const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

/** Ticks of a time axis, at seconds, minutes and hours people count in. @param {number} low @param {number} high @param {number} wanted */
export function clockTicks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  if (rough < 1) return multiples(niceStep(rough), low, high);
  const step = CLOCK_STEPS.find((each) => each >= rough) ?? 86400 * niceStep(rough / 86400);
  return multiples(step, low, high);
}
