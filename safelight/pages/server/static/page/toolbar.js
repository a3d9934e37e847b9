/**
 * What a person sets for all charts at once: the x axis, the smoothing, and the way back to everything.
 */

import { whereWords } from "../chart/axis.js";
import { SMOOTHING } from "../chart/view.js";
import { choice, h, say } from "../element.js";
import { count } from "../words.js";

/** @param {import("../chart/view.js").View} view @returns {{element: HTMLElement, close: () => void}} */
export function buildToolbar(view) {
  const range = h("span.range");
  const reset = h("button.button", { type: "button", on: { click: () => view.zoom(null) } }, "Show all");
  const element = h("div.toolbar", { role: "group", "aria-label": "Settings of all charts" },
    h("div.tool", h("span.eyebrow", "Across"), choice("Across", { step: "steps", time: "time", images: "images" }, view.axis, (axis) => view.setAxis(/** @type {any} */ (axis)))),
    smoothing(view),
    h("div.tool.grow", range, reset));
  const show = () => {
    const { first, last } = view.range ?? view.extent;
    say(range, view.range ? `Steps ${count(first)} to ${count(last)}` : `All steps, to ${whereWords(view, last).replace(/^step /, "")}`);
    reset.disabled = !view.range;
  };
  show();
  return { element, close: view.subscribe((change) => change !== "cursor" && show()) };
}

/** @param {import("../chart/view.js").View} view */
function smoothing(view) {
  const words = h("output", { for: "smoothing" });
  const nearest = SMOOTHING.reduce((best, each, place) => (Math.abs(each - view.smooth) < Math.abs(SMOOTHING[best] - view.smooth) ? place : best), 0);
  const slider = h("input", { type: "range", id: "smoothing", min: 0, max: SMOOTHING.length - 1, step: 1, value: nearest });
  const show = () => {
    const halfLife = SMOOTHING[Number(slider.value)];
    const told = halfLife ? `half-life ${count(halfLife)} step${halfLife > 1 ? "s" : ""}` : "off";
    say(words, told);
    slider.setAttribute("aria-valuetext", told);
  };
  slider.addEventListener("input", () => {
    show();
    view.setSmooth(SMOOTHING[Number(slider.value)]);
  });
  show();
  return h("div.tool", h("label.eyebrow", { for: "smoothing" }, "Smoothing"), slider, words);
}
