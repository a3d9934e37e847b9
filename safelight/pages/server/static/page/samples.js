/**
 * The samples of a run in full: the grid, raw against averaged weights, the denoising strip, the nearest training images.
 */

import { h } from "../element.js";
import { Stages } from "./stages.js";

const KINDS = [
  { kind: "raw_and_averaged", title: "Raw against averaged weights", what: "Samples of raw and averaged weights", empty: "Drawn with every stage." },
  { kind: "denoising", title: "From noise to image", what: "Denoising strip", empty: "Drawn with every stage." },
  { kind: "closest", title: "Nearest training images", what: "Samples with the training images nearest to them", empty: "Drawn with every evaluation of samples." },
];

const OURS = new Set(["samples", "timelapse", "contact_sheet", ...KINDS.map(({ kind }) => kind)]);
const MOST_OWN = 12; // kinds of pictures of the loop's own

export class Samples {
  /** @param {any} run @param {import("../source/server.js").Source} source @param {import("../chart/view.js").View} view */
  constructor(run, source, view) {
    this._source = source;
    this._id = run.id;
    const address = (/** @type {any} */ picture) => source.picture(run.id, picture);
    this.grid = new Stages({ label: "samples", what: "Samples", empty: "The first samples appear with the first stage.", className: "large" }, view, address);
    this._others = KINDS.map(({ kind, title, what, empty }) => ({ kind, title, stages: new Stages({ label: title.toLowerCase(), what, empty }, view, address) }));
    /** @type {{kind: string, stages: Stages}[]} */
    this._own = [];
    this._makeOwn = (/** @type {string} */ kind) => new Stages({ label: kind, what: kind, empty: "" }, view, address);
    this._ownPlace = h("div.samples-own");
    this._timelapse = h("section.timelapse", { hidden: true }, h("h2", "Timelapse"));
    this.element = h("div.samples-page",
      h("section.samples-main", h("h2", "Samples"), h("p.quiet", "Always from the same noise, so that only the model changes. Arrow keys move through the stages; the charts follow."), this.grid.element),
      h("div.samples-side", this._others.map(({ title, stages }) => h("section", h("h2", title), stages.element)), this._ownPlace, this._timelapse));
    this.update(run);
  }

  /** @param {any} run */
  update(run) {
    this.grid.setPictures(ofKind(run.pictures, "samples"));
    for (const { kind, stages } of this._others) stages.setPictures(ofKind(run.pictures, kind));
    for (const kind of new Set(run.pictures.map((/** @type {any} */ picture) => picture.kind))) {
      if (OURS.has(kind) || this._own.length >= MOST_OWN || this._own.some((each) => each.kind === kind)) continue;
      const stages = this._makeOwn(kind);
      this._own.push({ kind, stages });
      this._ownPlace.append(h("section", h("h2", kind), stages.element));
    }
    for (const { kind, stages } of this._own) stages.setPictures(ofKind(run.pictures, kind));
    this._showTimelapse(ofKind(run.pictures, "timelapse").at(-1));
  }

  /** A moving picture is not started for those who asked for less motion. @param {any} picture */
  _showTimelapse(picture) {
    if (!picture || this._timelapse.dataset.id === picture.id) return;
    this._timelapse.dataset.id = picture.id;
    this._timelapse.hidden = false;
    const image = h("img.small-pixels", { src: this._source.picture(this._id, picture), alt: "All stages one after the other", width: picture.width, height: picture.height, loading: "lazy" });
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this._timelapse.append(still ? h("details", h("summary", "Show the moving picture"), image) : image);
  }

  close() {
    this.grid.close();
    for (const { stages } of [...this._others, ...this._own]) stages.close();
  }
}

/** @param {import("../source/server.js").Picture[]} pictures @param {string} kind in the order of steps */
export function ofKind(pictures, kind) {
  return pictures.filter((picture) => picture.kind === kind).sort((one, two) => one.step - two.step);
}
