/**
 * A picture in full size; the slider and the arrow keys go on working there.
 */

import { h, icon, say } from "../element.js";

/**
 * @typedef {object} Pictures
 * @property {() => number} count
 * @property {() => number} place
 * @property {(place: number) => void} show
 * @property {() => string} address
 * @property {() => string} words
 * @property {() => boolean} small
 */

/** @param {string} title @param {Pictures} pictures */
export function openDialog(title, pictures) {
  const image = h("img", { alt: "" });
  const words = h("output.caption");
  const slider = h("input.stage", { type: "range", min: 0, max: pictures.count() - 1, step: 1, "aria-label": `Stage of ${title}` });
  const closing = h("button.button.plain", { type: "button", "aria-label": "Close", on: { click: () => dialog.close() } }, icon("close"));
  const dialog = h("dialog.full", { "aria-label": title }, h("div.full-head", words, closing), h("div.full-picture", image), h("div.full-foot", slider));
  const draw = () => {
    image.src = pictures.address();
    image.alt = pictures.words();
    image.classList.toggle("small-pixels", pictures.small());
    slider.value = String(pictures.place());
    slider.setAttribute("aria-valuetext", pictures.words());
    say(words, pictures.words());
  };
  const go = (/** @type {number} */ place) => {
    pictures.show(Math.min(Math.max(0, place), pictures.count() - 1));
    draw();
  };
  slider.hidden = pictures.count() < 2;
  slider.addEventListener("input", () => go(Number(slider.value)));
  dialog.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    const way = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (!way || event.target === slider) return;
    event.preventDefault();
    go(pictures.place() + way);
  });
  dialog.addEventListener("click", (/** @type {MouseEvent} */ event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  draw();
  dialog.showModal();
}
