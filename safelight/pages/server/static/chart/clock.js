/**
 * Steps as wall time and back, by a few hundred moments that the record knows.
 */

export class Clock {
  /** @param {number[]} steps @param {number[]} times both rising */
  constructor(steps, times) {
    this.steps = steps;
    this.times = times.map((time) => time - times[0]);
  }

  /** Seconds since the first moment. @param {number} step */
  time(step) {
    return between(this.steps, this.times, step);
  }

  /** @param {number} time */
  step(time) {
    return between(this.times, this.steps, time);
  }
}

/** @param {{step: number[], time: number[]} | null | undefined} anchors */
export function makeClock(anchors) {
  return anchors && anchors.step.length > 1 ? new Clock(anchors.step, anchors.time) : null;
}

/** Straight between two anchors, and on beyond the ends. @param {number[]} from @param {number[]} to @param {number} at */
function between(from, to, at) {
  const after = Math.min(Math.max(1, lowerBound(from, at)), from.length - 1);
  const width = from[after] - from[after - 1];
  const share = width ? (at - from[after - 1]) / width : 0;
  return to[after - 1] + share * (to[after] - to[after - 1]);
}

/** The first place whose value is not below. @param {ArrayLike<number>} sorted @param {number} value */
export function lowerBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
