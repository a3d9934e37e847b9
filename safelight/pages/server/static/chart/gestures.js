/**
 * Fingers, mouse and keys on a chart: they move the cursor and the range of the view, and so all charts at once.
 *
 * Drag: zoom to it. Shift and drag: move. Ctrl and wheel, or pinch: zoom. Double click: everything.
 * Keys: arrows move the cursor, with shift the range; + and − zoom; Home, End; 0 or Escape: everything.
 */

/**
 * @param {HTMLElement} surface @param {import("./view.js").View} view
 * @param {() => import("./axis.js").Across | null} axis as it was painted last
 * @param {(selection: [number, number] | null) => void} select pixels that are being dragged over
 */
export function listen(surface, view, axis, select) {
  /** @type {Map<number, PointerEvent>} */
  const fingers = new Map();
  /** @type {{pixel: number, moving: boolean} | null} */
  let drag = null;
  let apart = 0;

  const pixelOf = (/** @type {MouseEvent} */ event) => event.clientX - surface.getBoundingClientRect().left;
  const stepAt = (/** @type {number} */ pixel) => axis()?.toStep(pixel) ?? 0;

  surface.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    if (fingers.size === 2) {
      drag = null;
      select(null);
      apart = spread(fingers);
    } else if (event.pointerType === "mouse" && event.button === 0) {
      drag = { pixel: pixelOf(event), moving: event.shiftKey };
      surface.setPointerCapture(event.pointerId);
    } else {
      view.point(stepAt(pixelOf(event)));
    }
  });

  surface.addEventListener("pointermove", (event) => {
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event);
    const pixel = pixelOf(event);
    if (fingers.size === 2) {
      const now = spread(fingers);
      if (apart && Math.abs(now - apart) > 3) {
        const [one, two] = [...fingers.values()].map(pixelOf);
        view.zoomBy(apart / Math.max(10, now), stepAt((one + two) / 2));
        apart = now;
      }
      return;
    }
    if (drag?.moving) {
      view.pan((drag.pixel - pixel) / surface.clientWidth);
      drag.pixel = pixel;
    } else if (drag) {
      select(Math.abs(pixel - drag.pixel) > 4 ? [Math.min(pixel, drag.pixel), Math.max(pixel, drag.pixel)] : null);
    }
    view.point(stepAt(pixel));
  });

  const release = (/** @type {PointerEvent} */ event) => {
    fingers.delete(event.pointerId);
    if (drag && !drag.moving && event.type === "pointerup") {
      const [from, to] = [drag.pixel, pixelOf(event)].sort((a, b) => a - b);
      if (to - from > 4) view.zoom({ first: stepAt(from), last: stepAt(to) });
    }
    drag = null;
    select(null);
  };
  surface.addEventListener("pointerup", release);
  surface.addEventListener("pointercancel", release);
  surface.addEventListener("pointerleave", (event) => {
    if (!drag && event.pointerType === "mouse" && document.activeElement !== surface) view.point(null);
  });

  surface.addEventListener("dblclick", () => view.zoom(null));

  surface.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // a wheel alone scrolls the page
    event.preventDefault();
    view.zoomBy(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), stepAt(pixelOf(event)));
  }, { passive: false });

  surface.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (press(event.key, event.shiftKey, view)) event.preventDefault();
  });
}

/** @param {string} key @param {boolean} shift @param {import("./view.js").View} view */
function press(key, shift, view) {
  const { first, last } = view.shown();
  const stride = Math.max(1, Math.round((last - first) / 100));
  const way = key === "ArrowLeft" ? -1 : key === "ArrowRight" ? 1 : 0;
  if (way && shift) view.pan(way * 0.2);
  else if (way) view.point((view.cursor ?? (way > 0 ? first : last)) + way * stride);
  else if (key === "+" || key === "=") view.zoomBy(0.6);
  else if (key === "-" || key === "_") view.zoomBy(1 / 0.6);
  else if (key === "Home") view.point(first);
  else if (key === "End") view.point(last);
  else if (key === "0" || key === "Escape") view.zoom(null);
  else return false;
  return true;
}

/** @param {Map<number, PointerEvent>} fingers */
function spread(fingers) {
  const [one, two] = [...fingers.values()];
  return Math.abs(one.clientX - two.clientX);
}
