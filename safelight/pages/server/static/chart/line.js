/**
 * A chart of lines over steps: what it asks for, its axes, its legend, and which curves and marks it draws.
 */

import { choice, fill, h, say } from "../element.js";
import { recall, remember } from "../memory.js";
import { colour, onTheme } from "../theme.js";
import { measured, reading } from "../words.js";
import { across, drawGrid, drawLevels, tickWords } from "./axis.js";
import { lowerBound } from "./clock.js";
import { drawCursor } from "./cursor.js";
import { drawCurve, isSparse, swatch } from "./curve.js";
import { listen } from "./gestures.js";
import { drawBest, drawMarks, drawNonfinite, drawRefused } from "./marks.js";
import { Panel } from "./panel.js";
import { fit } from "./reach.js";
import { drawReferences, known } from "./references.js";
import { describe, measuredAt, nearest, tabulate } from "./summary.js";

/**
 * @typedef {object} Line
 * @property {string} signal
 * @property {string} label
 * @property {number} colour 1 to 8
 * @property {import("../live/readings.js").Readings} [readings] of another run than the chart's
 * @property {number[]} [dash]
 * @property {boolean} [band] lowest to highest, and the smoothed curve over it
 * @property {string} [error] signal with the standard error
 * @property {string} [none] what an infinite reading means, where it is no fault: it is not drawn
 *
 * @typedef {object} Spec
 * @property {string} name for remembering
 * @property {string} title
 * @property {boolean} [streamed] false: new readings are asked for now and then
 * @property {string} [note]
 * @property {string} [unit]
 * @property {Line[]} lines
 * @property {"log" | "linear"} [y]
 * @property {boolean} [zero] the axis begins at zero
 * @property {string} [refused] signal that is above zero where an update was refused
 * @property {() => number | null} [best] step of the best
 * @property {import("./references.js").Reference[]} [references] levels that the lines are compared with
 * @property {number} [bottom] the axis begins no lower because of how a run began
 * @property {string} [empty] words while there is nothing
 * @property {string} [className]
 */

const EDGE = 6; // pixels around the end of a line that its joins and points reach over

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
    /** @type {{area: import("./axis.js").Area, x: import("./axis.js").Across, y: import("./scale.js").Scale, ends: Map<Line, {series: any, count: number}>} | null} */
    this._painted = null;
    this.panel = new Panel({ title: spec.title, note: spec.note, className: spec.className, onSee: (seen) => this._see(seen) },
      (grown) => (grown && this._paintEnd()) || this._paint(), () => this._paintCursor(), () => this._describe());
    this.figure = this.panel.figure;
    this._buildTools();
    this._buildLegend();
    listen(this.panel.overlay, view, () => this._painted?.x ?? null, (selection) => {
      this._selection = selection;
      this.panel.move();
    });
    const endView = view.subscribe((change) => change !== "grown" && (change === "cursor" ? this.panel.move() : this.panel.change()));
    const endTheme = onTheme(() => this._buildLegend());
    this._end = () => [endView, endTheme].forEach((end) => end());
  }

  /** @param {string[]} [names] signals that have new readings; without them, anything may have changed */
  change(names) {
    if (!names) this.panel.change();
    else if ([...this._sources().values()].flat().some((name) => names.includes(name))) this.panel.grow();
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
      if (seen) readings.wish(this, names, { streamed: this.spec.streamed ?? true });
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
    for (const reference of this.spec.references ?? []) need(this._readings, reference.signal);
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
    this._painted = { area, x, y, ends: this._ends(shown) };
    if (!shown.length) return this._paintLegend();
    drawGrid(context, area, x, y, this.spec.unit === "bytes" ? (value) => reading(value, "bytes") : tickWords);
    this._paintInside(context, shown, area, x, y);
    drawReferences(context, area, y, known(this.spec.references, this._readings), this._series(shown[0])?.mean.at(-1) ?? 0);
    this._paintBest(context, shown, area, x, y);
    this._paintLegend();
  }

  /** How far each line goes. @param {Line[]} shown */
  _ends(shown) {
    return new Map(shown.map((line) => {
      const series = /** @type {any} */ (this._series(line));
      return [line, { series, count: series.x.length }];
    }));
  }

  /** Curves and marks from a pixel on. @param {CanvasRenderingContext2D} context @param {Line[]} shown @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("./scale.js").Scale} y */
  _paintInside(context, shown, area, x, y) {
    context.save();
    context.beginPath();
    context.rect(area.left - 1, area.top - 5, area.right - area.left + 4, area.bottom - area.top + 6);
    context.clip();
    drawMarks(context, area, x, this._view.marks);
    for (const line of shown) this._paintLine(context, line, area, x, y);
    for (const line of shown) if (!line.none) drawNonfinite(context, area, x, /** @type {any} */ (this._series(line)));
    const refused = this.spec.refused && this._readings.get(this.spec.refused);
    if (refused) drawRefused(context, area, x, refused);
    context.restore();
  }

  /** Only the end, where the rest is as it was: a few pixels, again and again while a run goes on. @returns {boolean} */
  _paintEnd() {
    const shown = this.spec.lines.filter((line) => this._series(line)?.x.length);
    if (!this._painted || this.spec.best || this.spec.references || !shown.length || shown.length !== this._painted.ends.size) return false;
    const { area, x, y, ends } = this._painted, next = this._scale(shown, area);
    if ([0, 1].some((pixel) => next.toValue(pixel) !== y.toValue(pixel))) return false;
    let from = area.right;
    for (const [line, { series, count }] of ends) {
      if (this._series(line) !== series || line.error || isSparse(this.panel.width, count)) return false;
      from = Math.min(from, x.toPixel(series.x[Math.max(0, count - 2)]) - EDGE);
    }
    const part = { ...area, left: Math.max(area.left, Math.floor(from)) };
    const context = this.panel.context(this.panel.canvas, false);
    context.clearRect(part.left - 1, area.top - 5, area.right - part.left + 4, area.bottom - area.top + 6);
    drawLevels(context, { ...part, left: Math.max(area.left, part.left - 1) }, y);
    this._paintInside(context, shown, part, x, y);
    this._painted.ends = this._ends(shown);
    this._paintLegend();
    return true;
  }

  /** @param {boolean} full */
  _tellIfEmpty(full) {
    const waiting = this.spec.lines.some((line) => !(line.readings ?? this._readings).answered(line.signal));
    const trouble = this._readings.trouble;
    this.panel.tell(full ? null : trouble ? `The readings could not be fetched: ${trouble}` : waiting ? "Loading…" : this._view.range ? "Not measured in the steps that are shown." : (this.spec.empty ?? "Not measured in this run."));
  }

  /** @param {Line[]} lines @param {import("./axis.js").Area} area */
  _scale(lines, area) {
    const parts = lines.map((line) => {
      const series = /** @type {import("../live/readings.js").Series} */ (this._series(line)), [from, to] = this._places(series);
      return { series, errors: this._errors(line), from, to, band: Boolean(line.band) };
    });
    return fit(parts, known(this.spec.references, this._readings).map(({ value }) => value), { ...this.spec, y: this._y }, area);
  }

  /** @param {CanvasRenderingContext2D} context @param {Line} line @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("./scale.js").Scale} y */
  _paintLine(context, line, area, x, y) {
    const series = /** @type {import("../live/readings.js").Series} */ (this._series(line));
    const { first, last } = this._view.shown();
    const begin = line.dash?.length ? first : Math.max(first, Math.floor(x.toStep(area.left - 2 * EDGE))); // dashes count from the beginning
    const [from, to] = [lowerBound(series.end, begin), lowerBound(series.x, last + 1)];
    drawCurve(context, line, {
      series, errors: this._errors(line), from: Math.max(0, from - 1), to: Math.min(series.x.length, to + 1), x, y,
      smooth: this._view.smooth > 0, sparse: isSparse(this.panel.width, to - lowerBound(series.end, first)),
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
    const place = series && (this._view.cursor === null ? series.x.length - 1 : measuredAt(series, this._view.cursor));
    if (!series || place === null || place === undefined || place < 0) return "–";
    const value = series.mean[place];
    if (value === null) return line.none ?? "not finite";
    const errors = this._errors(line);
    if (errors) return measured(value, errors.mean[place] ?? null);
    const smooth = line.band && this._view.smooth > 0 ? series.smooth?.[place] : null;
    return reading(smooth ?? value, this.spec.unit);
  }

  _paintCursor() {
    if (!this._painted) return;
    const { area, x, y } = this._painted;
    const context = this.panel.over(this._view.cursor !== null || this._selection !== null);
    if (!context) return this._paintLegend();
    const dots = [];
    if (this._view.cursor !== null) {
      for (const line of this.spec.lines) {
        const series = this._series(line), place = series && measuredAt(series, this._view.cursor);
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
    const sentences = lines.map((line) => describe(line.label, /** @type {any} */ (this._series(line)), this.spec.unit, line.none));
    const rows = lines.length ? tabulate(lines.map((line) => /** @type {any} */ (this._series(line))), this.spec.unit) : [];
    return {
      summary: [...sentences, ...(lines.length ? known(this.spec.references, this._readings) : []).map(({ label, value }) => `${label}: ${reading(value)}.`)].join(" ") || "Nothing to draw yet.",
      head: ["step", ...lines.flatMap((line) => [line.label, "lowest", "highest", "not finite"])],
      rows,
    };
  }
}
