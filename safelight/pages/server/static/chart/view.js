/**
 * What all charts of a page share: which steps are seen, where the cursor is, what the x axis counts.
 */

import { recall, remember } from "../memory.js";

/**
 * @typedef {{first: number, last: number}} Range steps, both ends included
 * @typedef {"step" | "time" | "images"} Axis
 * @typedef {"range" | "cursor" | "axis" | "smooth" | "extent" | "grown" | "marks"} Change `grown`: there is more, and room for it
 * @typedef {{step: number, over?: number | null, tone: string, words: string}} Mark something that happened
 */

/** Half-lives in steps that are offered. */
export const SMOOTHING = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
const NARROWEST = 8; // steps that a zoom always shows
const ROOM = 0.04; // of the axis that waits for steps to come: until it is full, only its new end is painted

export class View {
  constructor() {
    /** @type {Range} what the record holds */
    this.extent = { first: 0, last: 1 };
    this.growing = false;
    /** @type {number} the last step that the axis reaches to */
    this._end = 1;
    /** @type {Range | null} the part that is looked at; null: everything, also what is still to come */
    this.range = null;
    /** @type {number | null} */
    this.cursor = null;
    /** @type {Axis} */
    this.axis = recall("axis", "step");
    /** @type {number} half-life of the smoothing in steps; 0: none. In steps, so that no zoom changes it. */
    this.smooth = recall("smooth", 20);
    this.smoothChosen = recall("smooth", null) !== null;
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {import("./clock.js").Clock | null} */
    this.clock = null;
    this.batch = 0;
    /** @type {Set<(change: Change) => void>} */
    this._listeners = new Set();
  }

  /** @param {(change: Change) => void} listener @returns {() => void} ends it */
  subscribe(listener) {
    this._listeners.add(listener);
    return () => this._listeners.delete(listener);
  }

  /** @param {Change} change */
  tell(change) {
    for (const listener of [...this._listeners]) listener(change);
  }

  /** @returns {Range} */
  shown() {
    return this.range ?? { first: this.extent.first, last: this._end };
  }

  /** @param {number} first @param {number} last @param {boolean} [growing] more steps will come */
  setExtent(first, last, growing = this.growing) {
    const end = Math.max(last, first + 1);
    const same = this.extent.first === first && growing === this.growing;
    if (same && this.extent.last === end) return;
    this.extent = { first, last: end };
    this.growing = growing;
    const most = growing ? Math.ceil(end + 8 + (end - first) * ROOM) : end;
    const holds = growing && this._end >= end && this._end <= most; // as much room as there was at most, and not yet full
    if (!holds) this._end = most;
    this.tell(holds && same ? "grown" : "extent");
  }

  /** Shows a part; everything, where the part is everything. @param {Range | null} range */
  zoom(range) {
    if (range) {
      const { first, last } = this.extent;
      const width = Math.min(Math.max(NARROWEST, range.last - range.first), last - first);
      const from = Math.min(Math.max(first, range.first), last - width);
      range = width >= last - first ? null : { first: Math.round(from), last: Math.round(from + width) };
    }
    this.range = range;
    this.tell("range");
  }

  /** Closer or farther around a step that stays where it is. @param {number} factor @param {number} [around] */
  zoomBy(factor, around) {
    const { first, last } = this.shown();
    const middle = around ?? this.cursor ?? (first + last) / 2;
    this.zoom({ first: middle - (middle - first) * factor, last: middle + (last - middle) * factor });
  }

  /** @param {number} share of the width */
  pan(share) {
    if (!this.range) return;
    const move = (this.range.last - this.range.first) * share;
    this.zoom({ first: this.range.first + move, last: this.range.last + move });
  }

  /** @param {number | null} step */
  point(step) {
    if (step !== null) step = Math.min(Math.max(Math.round(step), this.extent.first), this.extent.last);
    if (step === this.cursor) return;
    this.cursor = step;
    this.tell("cursor");
  }

  /** @param {Axis} axis */
  setAxis(axis) {
    this.axis = axis;
    remember("axis", axis);
    this.tell("axis");
  }

  /** @param {number} halfLife */
  setSmooth(halfLife) {
    this.smooth = halfLife;
    remember("smooth", halfLife);
    this.tell("smooth");
  }

  /** A smoothing that suits the length of a run, until a person chooses one. @param {number} steps */
  suggestSmooth(steps) {
    if (!this.smoothChosen) this.smooth = SMOOTHING.find((each) => each >= steps / 250) ?? SMOOTHING[SMOOTHING.length - 1];
  }

  /** Moves the charts to a moment, with room on both sides. @param {number} step @param {number | null} [over] */
  visit(step, over) {
    const width = Math.max(NARROWEST * 8, (this.extent.last - this.extent.first) / 6, over ? (over - step) * 1.6 : 0);
    const middle = over ? (step + over) / 2 : step;
    this.zoom({ first: middle - width / 2, last: middle + width / 2 });
    this.point(step);
  }
}
