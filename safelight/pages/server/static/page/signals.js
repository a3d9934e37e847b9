/**
 * Every recorded signal: searched, the loop's own first, and pinned to the overview.
 */

import { LineChart } from "../chart/line.js";
import { fill, h, say } from "../element.js";
import { recall, remember } from "../memory.js";
import { capital, count, reading } from "../words.js";
import { isOwn, liveSignals } from "./specs.js";

const OWN = "Logged by you", PINNED = "Pinned";
/** @type {Record<string, string>} */
const FAMILIES = { ema: "EMA", lr: "Learning rate", probe: "Fixed set", check: "Checks" };
const MARGIN = "300px"; // around the window, in which charts are made before they are seen

/** Names of the signals that a person pinned, in any run. @returns {string[]} */
export function pinned() {
  const kept = recall("pins", []);
  return Array.isArray(kept) ? kept.map(String) : [];
}

/** @param {any} signal @returns {import("../chart/line.js").Spec} */
export function specOf(signal) {
  const name = String(signal.name);
  return {
    name: `signal.${name}`, title: name, note: signal.meaning || undefined, unit: signal.unit === "1" ? "" : signal.unit,
    lines: [{ signal: name, label: signal.meaning || "value", colour: isOwn(signal) ? 4 : 6, band: true }],
    streamed: liveSignals().includes(name), empty: "Not in this report: the dashboard has it.",
  };
}

export class Signals {
  /**
   * @param {any} run @param {import("../chart/view.js").View} view @param {import("../live/readings.js").Readings} readings
   * @param {() => void} onPin
   */
  constructor(run, view, readings, onPin) {
    this._view = view;
    this._readings = readings;
    this._onPin = onPin;
    /** @type {Map<string, Cell>} */
    this._cells = new Map();
    this._find = h("input", { type: "search", placeholder: "Part of a name or of its meaning", "aria-label": "Find signals", on: { input: () => this._show() } });
    this._words = h("p.quiet", { role: "status" });
    this._groups = h("div.signal-groups");
    this.element = h("div.signals-page", h("div.run-tools", this._find, this._words), this._groups);
    this._sight = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this._cells.get(/** @type {any} */ (entry.target).dataset.signal)?.build();
    }, { rootMargin: MARGIN });
    this.update(run);
  }

  /** @param {any} run */
  update(run) {
    const known = run.signals.map((/** @type {any} */ signal) => signal.name).join();
    if (known === this._known) return;
    this._known = known;
    for (const signal of run.signals) {
      if (this._cells.has(signal.name)) continue;
      const cell = new Cell(signal, this._view, this._readings, () => this._pin(signal.name));
      this._cells.set(signal.name, cell);
      this._sight.observe(cell.element);
    }
    this._arrange();
  }

  /** The pinned ones first, then the loop's own, then by what they measure. */
  _arrange() {
    const pins = pinned();
    /** @type {Map<string, Cell[]>} */
    const groups = new Map([[PINNED, []], [OWN, []]]);
    for (const cell of this._cells.values()) {
      const name = String(cell.signal.name);
      const group = pins.includes(name) ? PINNED : isOwn(cell.signal) ? OWN : FAMILIES[name.split("/")[0]] ?? capital(name.split("/")[0]);
      groups.set(group, [...(groups.get(group) ?? []), cell]);
      cell.setPinned(pins.includes(name));
    }
    this._shown = [...groups].filter(([, cells]) => cells.length).map(([title, cells]) => {
      const words = h("span.count");
      return { cells, words, element: h("section", h("h2", title, words), h("div.chart-grid", cells.map((cell) => cell.element))) };
    });
    fill(this._groups, this._shown.map(({ element }) => element));
    this._show();
  }

  /** Only what has all words of the search. */
  _show() {
    const words = this._find.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const group of this._shown ?? []) {
      let here = 0;
      for (const cell of group.cells) {
        const matches = words.every((/** @type {string} */ word) => cell.text.includes(word));
        cell.element.hidden = !matches;
        here += Number(matches);
      }
      group.element.hidden = !here;
      say(group.words, here);
      found += here;
    }
    const all = count(this._cells.size);
    say(this._words, !this._cells.size ? "Nothing has been recorded yet." : words.length ? `${count(found)} of ${all} signals` : `${all} signals`);
  }

  /** @param {string} name */
  _pin(name) {
    const pins = pinned();
    remember("pins", pins.includes(name) ? pins.filter((each) => each !== name) : [...pins, name]);
    this._arrange();
    this._cells.get(name)?.focus();
    this._onPin();
  }

  /** @param {string[]} [names] signals that have new readings */
  change(names) {
    for (const cell of this._cells.values()) cell.change(names);
  }

  close() {
    this._sight.disconnect();
    for (const cell of this._cells.values()) cell.close();
  }
}

/** One signal: a chart, or its number where it was read once. It is made when it comes into view. */
class Cell {
  /**
   * @param {any} signal @param {import("../chart/view.js").View} view @param {import("../live/readings.js").Readings} readings
   * @param {() => void} onPin
   */
  constructor(signal, view, readings, onPin) {
    this.signal = signal;
    this.text = `${signal.name} ${signal.meaning ?? ""}`.toLowerCase();
    this._view = view;
    this._readings = readings;
    this._button = h("button.button.plain.pin", { type: "button", "aria-pressed": "false", "aria-label": `Pin ${signal.name} to the overview`, on: { click: onPin } }, "Pin");
    this._once = signal.first === signal.last;
    this.element = h("div.signal-cell", { class: `signal-cell ${this._once ? "once" : ""}`, "data-signal": signal.name });
    /** @type {LineChart | null} */
    this.chart = null;
  }

  build() {
    if (this.element.childElementCount) return;
    if (this._once) this._buildNumber();
    else {
      this.chart = new LineChart(specOf(this.signal), this._view, this._readings);
      this.chart.panel.tools.append(this._button);
      this.element.append(this.chart.figure);
    }
  }

  _buildNumber() {
    this._number = h("b", "…");
    this.element.append(h("div.single-reading", h("div", h("code", this.signal.name), h("span.faint", this.signal.meaning ?? "")), this._number, this._button));
    this._readings.wish(this, [this.signal.name], { pixels: 8, streamed: false });
    this.change();
  }

  /** @param {boolean} yes */
  setPinned(yes) {
    this._button.setAttribute("aria-pressed", String(yes));
    say(this._button, yes ? "Unpin" : "Pin");
  }

  focus() {
    this._button.focus();
  }

  /** @param {string[]} [names] */
  change(names) {
    this.chart?.change(names);
    if (!this._number || !this._readings.answered(this.signal.name)) return;
    const series = this._readings.get(this.signal.name), value = series?.mean.at(-1);
    say(this._number, !series ? "not in this report" : value === null ? "not finite" : reading(value, this.signal.unit));
  }

  close() {
    this.chart?.close();
    this._readings.release(this);
  }
}
