/**
 * Pictures of every stage of a run: a large one, a slider over the stages, a play button, full size on click.
 */

import { fill, h, icon, say } from "../element.js";
import { count } from "../words.js";
import { openDialog } from "./dialog.js";

const FRAME = 420; // ms for each stage while playing

export class Stages {
  /**
   * @param {{label: string, what: string, empty: string, controls?: boolean, className?: string}} options
   * @param {import("../chart/view.js").View} view
   * @param {(picture: import("../source/server.js").Picture) => string} address
   */
  constructor({ label, what, empty, controls = true, className = "" }, view, address) {
    this._view = view;
    this._address = address;
    this._what = what;
    this._label = label;
    /** @type {import("../source/server.js").Picture[]} */
    this.pictures = [];
    this._place = -1;
    this._newest = true; // follows new stages until a person looks at an older one
    this._build(label, empty, controls, className);
    this._end = view.subscribe((change) => {
      if (change === "cursor" && view.cursor !== null && !this._leading) this._follow(view.cursor);
    });
  }

  /** @param {string} label @param {string} empty @param {boolean} controls @param {string} className */
  _build(label, empty, controls, className) {
    this._image = h("img", { alt: "", decoding: "async" });
    this._frame = h("button.frame", { type: "button", hidden: true, on: { click: () => this._open() } }, this._image);
    this._empty = h("p.stage-empty", empty);
    this._caption = h("output.caption");
    this._slider = h("input.stage", { type: "range", min: 0, max: 0, step: 1, value: 0, disabled: true, "aria-label": `Stage of ${label}`, on: { input: () => this.show(Number(this._slider.value), true) } });
    this._play = h("button.button.plain.play", { type: "button", disabled: true, "aria-label": `Play the stages of ${label}`, on: { click: () => this._toggle() } }, icon("play"));
    this.element = h("div.stages", { class: `stages ${className}` },
      h("div.stage-place", this._frame, this._empty),
      controls && h("div.stage-bar", this._play, this._slider, this._caption));
    if (!controls) this.element.append(h("div.stage-bar.words-only", this._caption));
    this.element.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.target === this._slider) return;
      const way = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
      if (!way) return;
      event.preventDefault();
      this.show(this._place + way, true);
    });
  }

  /** @param {import("../source/server.js").Picture[]} pictures in the order of steps */
  setPictures(pictures) {
    const before = this.pictures[this._place]?.id;
    this.pictures = pictures;
    this._slider.max = String(Math.max(0, pictures.length - 1));
    this._slider.disabled = this._play.disabled = pictures.length < 2;
    if (!pictures.length) return;
    const kept = pictures.findIndex((picture) => picture.id === before);
    if (this._newest || kept < 0) this.show(pictures.length - 1);
    else this.show(kept);
  }

  /** @param {number} place @param {boolean} [byHand] the charts' cursor goes along */
  show(place, byHand = false) {
    place = Math.min(Math.max(0, place), this.pictures.length - 1);
    const picture = this.pictures[place];
    if (!picture) return;
    this._newest = place === this.pictures.length - 1;
    const same = picture.id === this._shown;
    this._place = place;
    this._slider.value = String(place);
    const words = `after step ${count(picture.step)}`;
    say(this._caption, words);
    this._slider.setAttribute("aria-valuetext", words);
    if (!same) this._load(picture, words);
    if (byHand) {
      this._leading = true;
      this._view.point(picture.step - 1); // the update before it: a picture counts completed ones
      this._leading = false;
    }
  }

  /** The one before stays until the next one is there: no flicker. @param {import("../source/server.js").Picture} picture @param {string} words */
  _load(picture, words) {
    this._shown = picture.id;
    this._empty.hidden = true;
    this._frame.hidden = false;
    this._frame.setAttribute("aria-label", `${this._what} ${words}: open in full size`);
    const next = new Image();
    next.src = this._address(picture);
    const put = () => {
      if (this._shown !== picture.id) return;
      this._image.src = next.src;
      this._image.width = picture.width;
      this._image.height = picture.height;
      this._image.alt = `${this._what} ${words}`;
      this._image.classList.toggle("small-pixels", picture.width < 700);
    };
    next.decode().then(put, put);
    for (const beside of [this.pictures[this._place + 1], this.pictures[this._place - 1]]) {
      if (beside) new Image().src = this._address(beside);
    }
  }

  /** The newest stage that was drawn by then. @param {number} step */
  _follow(step) {
    let place = 0;
    while (place + 1 < this.pictures.length && this.pictures[place + 1].step <= step + 1) place += 1;
    if (place !== this._place) this.show(place);
  }

  _toggle() {
    if (this._playing) return this._stop();
    if (this._place === this.pictures.length - 1) this.show(0, true);
    fill(this._play, icon("pause"));
    this._play.setAttribute("aria-label", "Pause");
    this._playing = setInterval(() => {
      if (this._place + 1 < this.pictures.length) this.show(this._place + 1, true);
      else this._stop();
    }, FRAME);
  }

  _stop() {
    clearInterval(this._playing);
    this._playing = 0;
    fill(this._play, icon("play"));
    this._play.setAttribute("aria-label", `Play the stages of ${this._label}`);
  }

  _open() {
    openDialog(this._label, {
      count: () => this.pictures.length,
      place: () => this._place,
      show: (place) => this.show(place, true),
      address: () => this._address(this.pictures[this._place]),
      words: () => `${this._what}, ${this._caption.textContent}`,
      small: () => this.pictures[this._place].width < 700,
    });
  }

  close() {
    this._end();
    this._stop();
  }
}
