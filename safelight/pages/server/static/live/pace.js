/**
 * How often a live page takes in news: so seldom that it leaves the processor to the training it shows.
 */

const SHARE = 100; // of its time, a page spends one part on news
const LONGEST = 100; // ms that news waits here: it was sent 0.8 s after it was stored at most

/**
 * News of readings wait while the page rests from the last ones, and come as one. Everything else passes, behind them.
 * @param {(event: import("../source/server.js").LiveEvent) => void} hear
 * @returns {{hear: (event: import("../source/server.js").LiveEvent) => void, close: () => void}}
 */
export function paced(hear) {
  /** @type {import("../source/server.js").LiveEvent | null} */
  let waiting = null;
  let timer = 0;
  let free = 0; // when the next news may be taken in

  const take = () => {
    clearTimeout(timer);
    timer = 0;
    if (!waiting) return;
    const event = waiting, begun = performance.now();
    waiting = null;
    hear(event);
    const spent = performance.now() - begun;
    requestAnimationFrame((frame) => {
      // After the frame: what it took to paint is part of the price.
      setTimeout(() => (free = performance.now() + Math.min(LONGEST, (SHARE - 1) * (spent + performance.now() - frame))));
    });
  };
  return {
    hear: (event) => {
      if (event.kind === "delta") {
        waiting = waiting ? { kind: "delta", data: together(waiting.data, event.data) } : event;
        if (!timer) timer = setTimeout(take, Math.max(0, free - performance.now()));
        return;
      }
      if (event.kind === "reset") waiting = null; // what waits is of steps that are gone
      take();
      hear(event);
    },
    close: () => {
      clearTimeout(timer);
      waiting = null;
    },
  };
}

/** Two deltas as one. @param {any} one @param {any} two the later one */
export function together(one, two) {
  const series = { ...one.series };
  for (const [name, { x, y }] of Object.entries(two.series ?? {})) {
    const before = series[name];
    series[name] = before ? { x: [...before.x, ...x], y: [...before.y, ...y] } : { x, y };
  }
  return { ...one, ...two, after: one.after, series };
}
