/**
 * The charts of one run: loss, noise levels, gradient flow and the small ones, linked by one view.
 */

import { Heatmap } from "../chart/heatmap.js";
import { LineChart } from "../chart/line.js";
import { choice, h } from "../element.js";
import { number } from "../words.js";
import { pinned, specOf } from "./signals.js";
import { LOSS_LINES, lossSpec, ownSpecs, smallSpecs } from "./specs.js";

const COLUMNS = 600; // of noise levels before they are asked for again, in fewer
const LEVELS_AGAIN = 15_000; // ms between two looks at the noise levels of a run that goes on

export class Charts {
  /**
   * @param {any} run @param {import("../source/server.js").Source} source @param {import("../chart/view.js").View} view
   * @param {import("../live/readings.js").Readings} readings
   */
  constructor(run, source, view, readings) {
    this.run = run;
    this._source = source;
    this._view = view;
    this._readings = readings;
    /** @type {{loss: any, skill: any}} */
    this._levels = { loss: null, skill: null };
    this.loss = this._makeLoss();
    this.levels = this._makeLevels();
    this.flow = this._makeFlow();
    this.small = smallSpecs((name) => this.run[name]).map((spec) => new LineChart(spec, view, readings));
    this.all = [this.loss, this.levels, this.flow, ...this.small];
    /** @type {Map<string, LineChart>} */
    this.pins = new Map();
    this._pinPlace = h("div.chart-grid.pinned", { hidden: true });
    this.main = h("div.chart-main", this.loss.figure, this.levels.figure, this._pinPlace);
    this.grid = h("div.chart-grid", this.small.slice(0, 4).map((chart) => chart.figure), this.flow.figure, this.small.slice(4).map((chart) => chart.figure));
    /** @type {LineChart[]} */
    this.own = [];
    this._addOwn(run.signals);
    this.showPinned();
    this._end = view.subscribe((change) => {
      if (change === "range") this._askLevels(120);
    });
    if (source.kind === "report") this._preload();
    else {
      this.loss.preload(); // it is what is seen first: no need to wait until it is
      readings.askNow();
    }
    this.update(run);
  }

  _preload() {
    for (const chart of [this.loss, ...this.small, ...this.own]) chart.preload();
    this._readings.wish(this, this._parts(), { pixels: 150, streamed: false });
    this._askLevels(0);
  }

  /** @param {any} run */
  update(run) {
    this.run = { ...this.run, ...run };
    this._addOwn(this.run.signals);
    const ended = !["live", "stale", "watched", "empty"].includes(this.run.state);
    const known = new Set(this.run.signals.map((/** @type {any} */ signal) => signal.name));
    for (const chart of this.small) chart.figure.hidden = ended && !chart.spec.lines.some((line) => known.has(line.signal));
    this.levels.figure.hidden = ended && ![...known].some((name) => String(name).startsWith("loss/level/"));
    this.flow.figure.hidden = ended && !this._parts().length;
    this._nameDistance();
    this.change();
  }

  /** Charts of the signals that a person pinned, as far as this run has them. */
  showPinned() {
    const known = new Map(this.run.signals.map((/** @type {any} */ signal) => [String(signal.name), signal]));
    const wanted = pinned().filter((name) => known.has(name));
    for (const [name, chart] of this.pins) {
      if (wanted.includes(name)) continue;
      chart.close();
      this.pins.delete(name);
    }
    for (const name of wanted) if (!this.pins.has(name)) this.pins.set(name, new LineChart(specOf(known.get(name)), this._view, this._readings));
    this._pinPlace.replaceChildren(...wanted.map((name) => /** @type {LineChart} */ (this.pins.get(name)).figure));
    this._pinPlace.hidden = !wanted.length;
  }

  /** What the distance is called is known from the first evaluation on: FID, FD-lite0. */
  _nameDistance() {
    const chart = this.small.find(({ spec }) => spec.name === "distance"), label = this.run.distance_name;
    if (chart && label && chart.spec.lines[0].label !== label) chart.setLines([{ ...chart.spec.lines[0], label }]);
  }

  /** Charts of what the loop logs, as it comes. @param {any[]} signals */
  _addOwn(signals) {
    const there = new Set(this.own.map((chart) => chart.spec.name));
    for (const spec of ownSpecs(signals ?? [])) {
      if (there.has(spec.name)) continue;
      const chart = new LineChart(spec, this._view, this._readings);
      this.own.push(chart);
      this.all.push(chart);
      this.grid.append(chart.figure);
    }
  }

  /** @param {string[]} [names] signals that have new readings; without them, anything may have changed */
  change(names) {
    for (const chart of [...this.all, ...this.pins.values()]) chart.change(names);
  }

  /** New readings came. @param {Record<string, any>} series */
  hear(series) {
    const grown = series[this._family === "skill" ? "skill/ema" : "loss/level/00"];
    if (grown && !this._view.range && this.levels.panel.seen) this._askLevels(LEVELS_AGAIN);
  }

  /** What is shown of the noise levels. @returns {"loss" | "skill"} */
  get _family() {
    return this.levels.kind === "skill" ? "skill" : "loss";
  }

  restart() {
    this._levels = { loss: null, skill: null };
    this._askLevels(0);
  }

  _makeLoss() {
    const chart = new LineChart(lossSpec(), this._view, this._readings);
    chart.panel.tools.prepend(choice("Which loss", { raw: "raw", whitened: "whitened" }, "raw", (kind) =>
      chart.setLines(/** @type {any} */ (LOSS_LINES)[kind])));
    return chart;
  }

  _makeLevels() {
    return new Heatmap({
      name: "levels", title: "Loss by noise level", top: "most noise", bottom: "least noise", className: "tall",
      note: "Sixteen slices of equal probability, ordered by their signal-to-noise ratio. “change” shows each level against its own beginning, “skill” against the best linear filter of the data, at every checkpoint.",
      kinds: { value: "value", change: "change", skill: "skill" },
      rows: (kind) => levelRows(this._levels, kind, this.run.levels),
      empty: (kind) => (kind === "skill" ? "Appears with the first checkpoint of a run whose data is known." : "Appears after 64 steps."),
      onKind: () => this._askLevels(0),
      onSee: (seen) => seen && !this._levels[this._family] && this._askLevels(0),
    }, this._view);
  }

  _makeFlow() {
    const chart = new Heatmap({
      name: "flow", title: "Gradient flow by part", top: "first part", bottom: "last part", className: "wide",
      note: "Norm of the gradients of each part of the network.",
      rows: () => this._flowRows(),
      onSee: (seen) => {
        if (seen) this._readings.wish(this, this._parts(), { pixels: 150, streamed: false });
        else this._readings.release(this);
      },
    }, this._view);
    return chart;
  }

  _parts() {
    return this.run.signals.map((/** @type {any} */ signal) => signal.name).filter((/** @type {string} */ name) => name.startsWith("gradient/part/")).sort(byNetwork);
  }

  _flowRows() {
    const names = this._parts();
    if (names.some((/** @type {string} */ name) => !this._readings.answered(name))) return null;
    return names.flatMap((/** @type {string} */ name) => {
      const series = this._readings.get(name);
      return series ? [{ label: name.replace("gradient/part/", ""), x: series.x, end: series.end, values: series.mean }] : [];
    });
  }

  /** @param {number} wait ms */
  _askLevels(wait) {
    if (this._timer && wait >= LEVELS_AGAIN) return;
    clearTimeout(this._timer);
    this._timer = setTimeout(async () => {
      this._timer = 0;
      const of = this._family, before = this._levels[of];
      const range = of === "skill" ? null : this._view.range; // a checkpoint stands for many steps: all of them are few
      const there = before?.x.length ?? 0;
      const known = wait >= LEVELS_AGAIN && !range && there > 0 && there < COLUMNS ? before : null; // only what is new
      try {
        const found = await this._source.heatmap(this.run.id, { of, first: known ? known.end.at(-1) + 1 : range?.first, last: range ? range.last + 64 : undefined, pixels: 300 });
        this._levels[of] = known ? addColumns(known, found) : found;
      } catch {
        this._levels[of] = before ?? { levels: 16, x: [], end: [], values: [] }; // the lines tell of the trouble
      }
      this.levels.change();
    }, wait);
  }

  close() {
    this._end();
    clearTimeout(this._timer);
    for (const chart of [...this.all, ...this.pins.values()]) chart.close();
  }
}

/** @param {any} known @param {any} found later columns */
function addColumns(known, found) {
  return { ...known, x: [...known.x, ...found.x], end: [...known.end, ...found.end], values: [...known.values, ...found.values] };
}

/** @param {number} level @param {{time: string, t: number[][], log_snr: number[][]} | null | undefined} ends */
export function levelWords(level, ends) {
  const t = ends?.t[level], snr = ends?.log_snr[level];
  if (!ends || !t || !snr) return `level ${level}`;
  const range = (/** @type {number[]} */ [low, high]) => (low === high ? number(low) : `${number(low)} to ${number(high)}`);
  return `level ${level} (${ends.time} ${range(t)}, log-SNR ${range(snr)})`;
}

/** Most noise on top. @param {{loss: any, skill: any}} levels @param {import("../chart/heatmap.js").Kind} kind @param {any} ends times and log-SNR of each level */
function levelRows(levels, kind, ends) {
  const found = kind === "skill" ? levels.skill : levels.loss;
  if (!found) return null;
  const over = kind === "skill" ? 1 + (found.x[0] ?? 0) : 64; // a first checkpoint stands for all that came before it
  const rows = [];
  for (let level = found.levels - 1; level >= 0; level -= 1) {
    rows.push({ label: levelWords(level, ends), x: found.x, end: found.end, over, values: found.values.map((/** @type {any} */ column) => column?.[level] ?? null) });
  }
  return rows;
}

const ORDER = ["conv_in", "time", "class", "down", "mid", "up", "conv_norm", "conv_out"];

/** In the order in which images pass through a U-Net. @param {string} one @param {string} two */
function byNetwork(one, two) {
  const place = (/** @type {string} */ name) => {
    const found = ORDER.findIndex((word) => name.includes(`/${word}`));
    return found < 0 ? ORDER.length : found;
  };
  const padded = (/** @type {string} */ name) => name.replace(/\d+/g, (digits) => digits.padStart(6, "0")); // block 10 after block 9
  return place(one) - place(two) || (padded(one) < padded(two) ? -1 : 1);
}
