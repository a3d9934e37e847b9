/**
 * The readings that charts of one run show: asked for together, added to while the run goes on, asked again on zoom.
 */

import { makeClock } from "../chart/clock.js";
import { continueSmooth } from "./smooth.js";
import { join, merge } from "./spans.js";

/**
 * One entry of each array per span of steps; null where nothing is finite.
 * @typedef {object} Series
 * @property {number[]} x first step of the span
 * @property {number[]} end last step of the span
 * @property {(number | null)[]} low
 * @property {(number | null)[]} high
 * @property {(number | null)[]} mean
 * @property {number[]} nonfinite
 * @property {(number | null)[]} [smooth]
 */

const SETTLE = 90; // ms after a zoom before the server is asked: a drag is one question
const AGAIN = 15_000; // ms between two looks at what is not streamed
const MOST = 2400; // spans of a signal, single readings among them, before neighbours become one

export class Readings {
  /**
   * @param {import("../source/server.js").Source} source @param {string} id
   * @param {import("../chart/view.js").View} view
   * @param {(names?: string[]) => void} changed all of them, or these by readings at their end
   */
  constructor(source, id, view, changed) {
    this._source = source;
    this._id = id;
    this._view = view;
    this._changed = changed;
    /** @type {Map<string, Series>} */
    this._series = new Map();
    /** @type {Map<string, string>} the question that each answer belongs to */
    this._asked = new Map();
    /** @type {Map<object, {names: string[], pixels: number, streamed: boolean}>} */
    this._wishes = new Map();
    this._looked = 0;
    /** @type {Set<string>} */
    this.missing = new Set();
    /** @type {string | null} */
    this.trouble = null;
    this._end = view.subscribe((change) => {
      if (change === "range" || change === "smooth") this._askSoon(SETTLE);
    });
  }

  /** @param {string} name @returns {Series | undefined} */
  get(name) {
    return this._series.get(name);
  }

  /** True once the server has answered for a signal, be it that there is none. @param {string} name */
  answered(name) {
    return this._series.has(name) || this.missing.has(name);
  }

  /**
   * A chart in view wishes for signals. @param {object} chart @param {string[]} names
   * @param {{pixels?: number, streamed?: boolean}} [how] `streamed`: new readings are pushed
   */
  wish(chart, names, { pixels = 700, streamed = true } = {}) {
    this._wishes.set(chart, { names, pixels, streamed });
    this._askSoon(0);
  }

  /** @param {object} chart */
  release(chart) {
    this._wishes.delete(chart);
  }

  /** Everything anew: the record was cut by a resume. */
  restart() {
    this._asked.clear();
    this._series.clear();
    this._askSoon(0);
  }

  /** Asks again for all that is in view: too much was missed. */
  renew() {
    this._asked.clear();
    this._askSoon(0);
  }

  /** @param {Record<string, {x: number[], y: (number | null)[]}>} series new readings */
  add(series) {
    for (const [name, { x, y }] of Object.entries(series)) {
      const into = this._series.get(name);
      if (!into) {
        if (this.missing.delete(name)) this._asked.delete(name);
        continue;
      }
      this._append(into, x, y);
      if (into.x.length > MOST) this._series.set(name, merge(into, 2));
    }
    const names = Object.keys(series);
    if (!names.length) return;
    if (!this._view.range) this._changed(names);
    if (names.some((name) => !this._asked.has(name))) this._askSoon(0);
    this._extendSoon();
  }

  /** What is not pushed is asked for from time to time, and only what is new of it. */
  _extendSoon() {
    if (this._extending || this._view.range || ![...this._wishes.values()].some((wish) => !wish.streamed)) return;
    this._extending = setTimeout(async () => {
      this._extending = 0;
      this._looked = Date.now();
      for (const { names, pixels, streamed } of this._wishes.values()) if (!streamed) await this._extend(names, pixels);
    }, Math.max(0, this._looked + AGAIN - Date.now()));
  }

  /** @param {string[]} names @param {number} pixels */
  async _extend(names, pixels) {
    const ends = names.flatMap((name) => this._series.get(name)?.end.at(-1) ?? []);
    if (!ends.length || this._view.range) return;
    try {
      const { series } = await this._source.series(this._id, { signals: names, first: Math.min(...ends) + 1, pixels });
      if (this._view.range) return; // the zoom went on meanwhile
      for (const [name, later] of Object.entries(series)) {
        const known = this._series.get(name);
        if (!known) continue;
        const joined = join(known, later);
        this._series.set(name, merge(joined, joined.x.length > 4 * pixels ? 2 : 1));
      }
      this._changed();
    } catch {
      return; // the next readings ask again
    }
  }

  /** @param {Series} into @param {number[]} x @param {(number | null)[]} y */
  _append(into, x, y) {
    if (this._view.range) return; // a part is looked at: it is asked for again when that changes
    let last = into.end.length ? into.end[into.end.length - 1] : -1;
    for (let i = 0; i < x.length; i += 1) {
      if (x[i] <= last) continue;
      if (into.smooth) into.smooth.push(continueSmooth(into, x[i], y[i], this._view.smooth));
      into.x.push(x[i]);
      into.end.push(x[i]);
      into.low.push(y[i]);
      into.high.push(y[i]);
      into.mean.push(y[i]);
      into.nonfinite.push(y[i] === null ? 1 : 0);
      last = x[i];
    }
  }

  /** @param {number} wait ms */
  _askSoon(wait) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this.askNow(), wait);
  }

  async askNow() {
    const { range, smooth } = this._view;
    const question = `${range ? `${range.first}-${range.last}` : "all"}/${smooth}`;
    const groups = { lines: new Set(), rows: new Set() }; // only lines are smoothed
    let [wide, narrow] = [0, 0];
    for (const { names, pixels, streamed } of this._wishes.values()) {
      for (const name of names) if (this._asked.get(name) !== question) (streamed ? groups.lines : groups.rows).add(name);
      if (streamed) wide = Math.max(wide, pixels);
      else narrow = Math.max(narrow, pixels);
    }
    await Promise.all([this._fetch([...groups.lines], wide, question, smooth), this._fetch([...groups.rows], narrow, question, 0)]);
  }

  /** @param {string[]} names @param {number} pixels @param {string} question @param {number} smooth */
  async _fetch(names, pixels, question, smooth) {
    if (!names.length) return;
    for (const name of names) this._asked.set(name, question);
    const { range } = this._view;
    try {
      const found = await this._source.series(this._id, { signals: names, first: range?.first, last: range?.last, pixels, smooth });
      this.trouble = null;
      for (const name of names) {
        if (this._asked.get(name) !== question) continue; // the zoom went on meanwhile
        if (found.series[name]) {
          this._series.set(name, found.series[name]);
          this.missing.delete(name);
        } else {
          this._series.delete(name);
          this.missing.add(name);
        }
      }
      if (found.clock && !range) this._view.clock = makeClock(found.clock) ?? this._view.clock;
      this._changed();
    } catch (error) {
      for (const name of names) this._asked.delete(name);
      this.trouble = String(/** @type {Error} */ (error).message);
      this._changed();
    }
  }

  close() {
    this._end();
    clearTimeout(this._timer);
    clearTimeout(this._extending);
    this._wishes.clear();
  }
}
