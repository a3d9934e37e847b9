/**
 * One animation frame for everything that wants to be painted; none while nobody looks.
 */

/** @type {Set<() => void>} */
const waiting = new Set();
let asked = 0;

/** @param {() => void} work done once in the next frame, however often it is asked for */
export function paintSoon(work) {
  waiting.add(work);
  if (!asked && !document.hidden) asked = requestAnimationFrame(paintNow);
}

export function paintNow() {
  asked = 0;
  const works = [...waiting];
  waiting.clear();
  for (const work of works) work();
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && waiting.size && !asked) asked = requestAnimationFrame(paintNow);
});
