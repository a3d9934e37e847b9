/**
 * A chart of lines over steps: what it asks for, its axes, its legend, and which curves and marks it draws.
 */

import { choice, fill, h, say } from "../element.js";
import { recall, remember } from "../memory.js";
import { colour, onTheme } from "../theme.js";
import { measured, reading } from "../words.js";
import { across, drawGrid, tickWords } from "./axis.js";
import { lowerBound } from "./clock.js";
import { drawCursor } from "./cursor.js";
import { drawCurve, swatch } from "./curve.js";
import { listen } from "./gestures.js";
import { drawBest, drawMarks, drawNonfinite, drawRefused } from "./marks.js";
import { Panel } from "./panel.js";
import { logarithmic, roundedLinear } from "./scale.js";
import { describe, nearest, tabulate } from "./summary.js";

/**
 * @typedef {object} Line
 * @property {string} signal
 * @property {string} label
 * @property {number} colour 1 to 8
 * @property {import("../live/readings.js").Readings} [readings] of another run than the chart's
 * @property {number[]} [dash]
 * @property {boolean} [band] lowest to highest, and the smoothed curve over it
 * @property {string} [error] signal with the standard error
 *
 * @typedef {object} Spec
 * @property {string} name for remembering
 * @property {string} title
 * @property {string} [note]
 * @property {string} [unit]
 * @property {Line[]} lines
 * @property {"log" | "linear"} [y]
 * @property {boolean} [zero] the axis begins at zero
 * @property {string} [refused] signal that is above zero where an update was refused
 * @property {() => number | null} [best] step of the best
 * @property {string} [empty] words while there is nothing
 * @property {string} [className]
 */

export class LineChart {
  /** @param {Spec} spec @param {import("./view.js").View} view @param {import("../live/readings.js").Readings} readings */
  constructor(spec, view, readings) {
    this.spec = spec;
    this._view = view;
    this._readings = readings;
    /** @type {"log" | "linear"} */
    this._y = recall(`y.${spec.name}`, spec.y ?? "linear");
    /** @type {[number, number] | null} */
    this._selection = null;
    /** @type {{area: import("./axis.js").Area, x: import("./axis.js").Across, y: import("./scale.js").Scale} | null} */
    this._painted = null;
    this.panel = new Panel({ title: spec.title, note: spec.note, className: spec.className, onSee: (seen) => this._see(seen) },
      () => this._paint(), () => this._paintCursor(), () => this._describe());
    this.figure = this.panel.figure;
    this._buildTools();
    this._buildLegend();
    listen(this.panel.overlay, view, () => this._painted?.x ?? null, (selection) => {
      this._selection = selection;
      this.panel.move();
    });
    const endView = view.subscribe((change) => (change === "cursor" ? this.panel.move() : this.panel.change()));
    const endTheme = onTheme(() => this._buildLegend());
    this._end = () => [endView, endTheme].forEach((end) => end());
  }

  change() {
    this.panel.change();
  }

  /** Asks for the readings before the chart is seen: paper shows all of them. */
  preload() {
    this._see(true);
  }

  /** Other lines in the same frame. @param {Line[]} lines */
  setLines(lines) {
    this.spec = { ...this.spec, lines };
    this._buildLegend();
    this._see(this.panel.seen);
    this.panel.change();
  }

  close() {
    this._end();
    this._see(false);
    this.panel.close();
  }

  /** @param {boolean} seen */
  _see(seen) {
    for (const [readings, names] of this._sources()) {
      if (seen) readings.wish(this, names);
      else readings.release(this);
    }
  }

  /** The signals that are needed, by whose they are. @returns {Map<import("../live/readings.js").Readings, string[]>} */
  _sources() {
    const found = new Map();
    const need = (/** @type {any} */ readings, /** @type {string | undefined} */ name) => {
      if (name) found.set(readings, [...(found.get(readings) ?? []), name]);
    };
    for (const line of this.spec.lines) {
      need(line.readings ?? this._readings, line.signal);
      need(line.readings ?? this._readings, line.error);
    }
    need(this._readings, this.spec.refused);
    return found;
  }

  /** @param {Line} line */
  _series(line) {
    return (line.readings ?? this._readings).get(line.signal);
  }

  /** @param {Line} line */
  _errors(line) {
    return line.error ? (line.readings ?? this._readings).get(line.error) : undefined;
  }

  _buildTools() {
    this.panel.tools.append(choice(`Vertical axis of ${this.spec.title}`, { linear: "lin", log: "log" }, this._y, (y) => {
      this._y = /** @type {"log" | "linear"} */ (y);
      remember(`y.${this.spec.name}`, y);
      this.panel.change();
    }));
  }

  _buildLegend() {
    this._values = this.spec.lines.map(() => h("b"));
    fill(this.panel.legend, this.spec.lines.map((line, place) =>
      h("li", swatch(line), h("span", line.label), /** @type {any} */ (this._values)[place])));
  }

  /** Places of the spans that are seen. @param {import("../live/readings.js").Series} series @returns {[number, number]} from, and up to without */
  _places(series) {
    const { first, last } = this._view.shown();
    return [lowerBound(series.end, first), lowerBound(series.x, last + 1)];
  }

  _paint() {
    const context = this.panel.context(this.panel.canvas);
    const shown = this.spec.lines.filter((line) => this._series(line)?.x.length);
    this._tellIfEmpty(shown.length > 0);
    const gutter = Math.max(44, context.measureText("000.0 M").width + 6);
    const area = { left: gutter, right: this.panel.width - 10, top: 10, bottom: this.panel.height - 26 };
    const x = across(this._view, area);
    const y = this._scale(shown, area);
    this._painted = { area, x, y };
    if (!shown.length) return this._paintLegend();
    drawGrid(context, area, x, y, this.spec.unit === "bytes" ? (value) => reading(value, "bytes") : tickWords);
    context.save();
    context.beginPath();
    context.rect(area.left - 1, area.top - 5, area.right - area.left + 4, area.bottom - area.top + 6);
    context.clip();
    drawMarks(context, area, x, this._view.marks);
    for (const line of shown) this._paintLine(context, line, x, y);
    for (const line of shown) drawNonfinite(context, area, x, /** @type {any} */ (this._series(line)));
    const refused = this.spec.refused && this._readings.get(this.spec.refused);
    if (refused) drawRefused(context, area, x, refused);
    context.restore();
    this._paintBest(context, shown, area, x, y);
    this._paintLegend();
  }

  /** @param {boolean} full */
  _tellIfEmpty(full) {
    const waiting = this.spec.lines.some((line) => !(line.readings ?? this._readings).answered(line.signal));
    const trouble = this._readings.trouble;
    this.panel.tell(full ? null : trouble ? `The readings could not be fetched: ${trouble}` : waiting ? "Loading…" : (this.spec.empty ?? "Not measured in this run."));
  }

  /** @param {Line[]} lines @param {import("./axis.js").Area} area */
  _scale(lines, area) {
    let low = Infinity, high = -Infinity, lowestPositive = Infinity;
    const see = (/** @type {number | null} */ value) => {
      if (value === null) return;
      low = Math.min(low, value);
      high = Math.max(high, value);
      if (value > 0) lowestPositive = Math.min(lowestPositive, value);
    };
    for (const line of lines) {
      const series = /** @type {import("../live/readings.js").Series} */ (this._series(line));
      const [from, to] = this._places(series), errors = this._errors(line);
      for (let i = from; i < to; i += 1) {
        see(line.band ? series.low[i] : series.mean[i]);
        see(line.band ? series.high[i] : series.mean[i]);
        const error = errors?.mean[i], mean = series.mean[i];
        if (error && mean !== null) [mean - error, mean + error].forEach(see);
      }
    }
    const wanted = Math.max(2, Math.floor((area.bottom - area.top) / 36));
    if (this._y === "log" && lowestPositive < Infinity) return logarithmic(lowestPositive, Math.max(high, lowestPositive * 1.0001), area.bottom, area.top, wanted);
    if (low > high) [low, high] = [0, 1];
    if (this.spec.zero) low = Math.min(0, low);
    return roundedLinear(low, high, area.bottom, area.top, wanted);
  }

  /** @param {CanvasRenderingContext2D} context @param {Line} line @param {import("./axis.js").Across} x @param {import("./scale.js").Scale} y */
  _paintLine(context, line, x, y) {
    const series = /** @type {import("../live/readings.js").Series} */ (this._series(line));
    const [from, to] = this._places(series);
    drawCurve(context, line, {
      series, errors: this._errors(line), from: Math.max(0, from - 1), to: Math.min(series.x.length, to + 1), x, y,
      smooth: this._view.smooth > 0, width: this.panel.width,
    });
  }

  /** @param {CanvasRenderingContext2D} context @param {Line[]} shown @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("./scale.js").Scale} y */
  _paintBest(context, shown, area, x, y) {
    const step = this.spec.best?.() ?? null;
    if (step === null || !shown.length) return;
    const series = /** @type {import("../live/readings.js").Series} */ (this._series(shown[0]));
    const place = nearest(series, step - 1);
    const value = place === null ? null : series.mean[place];
    if (place === null || value === null) return;
    const at = x.toPixel(series.x[place]);
    if (at >= area.left && at <= area.right) drawBest(context, area, at, y.toPixel(value));
  }

  _paintLegend() {
    this.spec.lines.forEach((line, place) => say(/** @type {any} */ (this._values)[place], this._valueWords(line)));
  }

  /** At the cursor, or the newest. @param {Line} line */
  _valueWords(line) {
    const series = this._series(line);
    const place = series && (this._view.cursor === null ? series.x.length - 1 : nearest(series, this._view.cursor));
    if (!series || place === null || place === undefined || place < 0) return "–";
    const value = series.mean[place];
    if (value === null) return "not finite";
    const errors = this._errors(line);
    if (errors) return measured(value, errors.mean[place] ?? null);
    const smooth = line.band && this._view.smooth > 0 ? series.smooth?.[place] : null;
    return reading(smooth ?? value, this.spec.unit);
  }

  _paintCursor() {
    if (!this._painted) return;
    const { area, x, y } = this._painted;
    const context = this.panel.context(this.panel.overlay);
    const dots = [];
    if (this._view.cursor !== null) {
      for (const line of this.spec.lines) {
        const series = this._series(line), place = series && nearest(series, this._view.cursor);
        if (!series || place === null || place === undefined) continue;
        const value = (line.band && this._view.smooth > 0 ? series.smooth?.[place] : null) ?? series.mean[place];
        if (value !== null) dots.push({ pixel: y.toPixel(value), colour: colour(`--line-${line.colour}`) });
      }
    }
    drawCursor(context, area, x, this._view, this._selection, dots);
    this._paintLegend();
  }

  _describe() {
    const lines = this.spec.lines.filter((line) => this._series(line)?.x.length);
    const sentences = lines.map((line) => describe(line.label, /** @type {any} */ (this._series(line)), this.spec.unit));
    const rows = lines.length ? tabulate(lines.map((line) => /** @type {any} */ (this._series(line))), this.spec.unit) : [];
    return {
      summary: sentences.join(" ") || "Nothing to draw yet.",
      head: ["step", ...lines.flatMap((line) => [line.label, "lowest", "highest", "not finite"])],
      rows,
    };
  }
}
