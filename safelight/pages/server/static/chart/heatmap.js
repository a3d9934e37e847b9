/**
 * Rows of numbers over steps as colours: noise levels, parts of the network.
 */

import { choice, fill, h, say } from "../element.js";
import { recall, remember } from "../memory.js";
import { colour } from "../theme.js";
import { count, number } from "../words.js";
import { across, drawTicksBelow, whereWords } from "./axis.js";
import { lowerBound } from "./clock.js";
import { shade } from "./colourmap.js";
import { drawCursor } from "./cursor.js";
import { listen } from "./gestures.js";
import { drawMarks } from "./marks.js";
import { Panel } from "./panel.js";

/**
 * @typedef {{label: string, x: number[], end: number[], values: (number | null)[], over?: number}} Row top one first; `over`: steps that a reading stands for
 * @typedef {"value" | "change" | "skill"} Kind
 * @typedef {object} Spec
 * @property {string} name
 * @property {string} title
 * @property {string} [note]
 * @property {Partial<Record<Kind, string>>} [kinds] what may be shown, with its words; unset: value and change
 * @property {(kind: Kind) => string} [empty]
 * @property {string} [className]
 * @property {string} top words at the upper end of the rows
 * @property {string} bottom
 * @property {(kind: Kind) => Row[] | null} rows null while they load
 * @property {() => void} [onKind] another kind was chosen
 * @property {(seen: boolean) => void} [onSee]
 */

const LEGEND_STEPS = 48;
const MOST_SKILL = 2; // 0 and 1, the linear filter, have the same colours in every run
/** @type {Partial<Record<Kind, string>>} */
const KINDS = { value: "value", change: "change" };

export class Heatmap {
  /** @param {Spec} spec @param {import("./view.js").View} view */
  constructor(spec, view) {
    this.spec = spec;
    this._view = view;
    const kinds = /** @type {Record<string, string>} */ (spec.kinds ?? KINDS);
    const kept = recall(`kind.${spec.name}`, "value");
    /** @type {Kind} */
    this.kind = kept in kinds ? kept : "value";
    /** @type {[number, number] | null} */
    this._selection = null;
    /** @type {{area: import("./axis.js").Area, x: import("./axis.js").Across, rows: Row[]} | null} */
    this._painted = null;
    this.panel = new Panel({ title: spec.title, note: spec.note, className: spec.className, onSee: spec.onSee },
      () => this._paint(), () => this._paintCursor(), () => this._describe());
    this.figure = this.panel.figure;
    this._buildLegend();
    this.panel.tools.append(choice(`What ${spec.title} shows`, kinds, this.kind, (kind) => {
      this.kind = /** @type {Kind} */ (kind);
      remember(`kind.${spec.name}`, kind);
      spec.onKind?.();
      this.panel.change();
    }));
    listen(this.panel.overlay, view, () => this._painted?.x ?? null, (selection) => {
      this._selection = selection;
      this.panel.move();
    });
    this.panel.overlay.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
      this._height = event.offsetY;
    });
    this._end = view.subscribe((change) => change !== "grown" && (change === "cursor" ? this.panel.move() : this.panel.change()));
  }

  /** @param {string[]} [names] signals that have new readings: rows are told by themselves */
  change(names) {
    if (!names) this.panel.change();
  }

  close() {
    this._end();
    this.spec.onSee?.(false);
    this.panel.close();
  }

  _buildLegend() {
    this._low = h("b.left");
    this._high = h("b.left");
    this._ramp = h("canvas.ramp", { width: LEGEND_STEPS * 2, height: 10, "aria-hidden": "true" });
    this._here = h("b.wide");
    fill(this.panel.legend, h("li", this._low, this._ramp, this._high), h("li", this._here));
  }

  /** Places of a row that are seen. @param {Row} row */
  _places(row) {
    const { first, last } = this._view.shown();
    return [lowerBound(row.end, first), Math.min(row.x.length, lowerBound(row.x, last + 1) + 1)]; // the next reading stands for steps before it
  }

  /** The number that is coloured: itself, skill as it is and a loss as its logarithm, or how often it doubled since the beginning of its row. @param {Row} row @param {number} place */
  _value(row, place) {
    const value = row.values[place];
    if (this.kind === "skill") return value ?? null;
    if (value === null || value === undefined || value <= 0) return null;
    if (this.kind === "value") return Math.log10(value);
    const start = row.values.find((each) => each !== null && each > 0);
    return start ? Math.log2(value / start) : null;
  }

  _paint() {
    const context = this.panel.context(this.panel.canvas);
    const rows = this.spec.rows(this.kind);
    const full = rows?.some((row) => row.x.length);
    this.panel.tell(rows === null ? "Loading…" : full ? null : (this.spec.empty?.(this.kind) ?? "Not measured in this run."));
    const gutter = Math.max(44, context.measureText("000.0 M").width + 6);
    const area = { left: gutter, right: this.panel.width - 10, top: 10, bottom: this.panel.height - 26 };
    const x = across(this._view, area);
    this._painted = { area, x, rows: rows ?? [] };
    if (!rows || !full) return;
    const [low, high] = this._ends(rows);
    const height = (area.bottom - area.top) / rows.length;
    rows.forEach((row, place) => this._paintRow(context, row, area.top + place * height, height, x, area, low, high));
    context.strokeStyle = colour("--hairline");
    context.strokeRect(area.left - 0.5, area.top - 0.5, area.right - area.left + 1, area.bottom - area.top + 1);
    this._paintSide(context, area);
    drawTicksBelow(context, area, x);
    drawMarks(context, area, x, this._view.marks);
    this._paintLegend(low, high);
  }

  /** @param {Row[]} rows @returns {[number, number]} */
  _ends(rows) {
    if (this.kind === "skill") return [0, MOST_SKILL];
    const found = [];
    for (const row of rows) {
      const [from, to] = this._places(row);
      for (let i = from; i < to; i += 1) {
        const value = this._value(row, i);
        if (value !== null) found.push(value);
      }
    }
    if (!found.length) return [0, 1];
    found.sort((a, b) => a - b); // a few lone peaks may exceed the scale: they are still the brightest
    const [low, high] = [found[Math.floor(found.length * 0.002)], found[Math.ceil(found.length * 0.998) - 1]];
    if (this.kind === "value") return [low, Math.max(high, low + 1e-6)];
    const reach = Math.max(Math.abs(low), Math.abs(high), 0.1);
    return [-reach, reach];
  }

  /** @param {CanvasRenderingContext2D} context @param {Row} row @param {number} top @param {number} height @param {import("./axis.js").Across} x @param {import("./axis.js").Area} area @param {number} low @param {number} high */
  _paintRow(context, row, top, height, x, area, low, high) {
    const [from, to] = this._places(row);
    const map = this.kind === "value" ? "ember" : "around";
    for (let i = from; i < to; i += 1) {
      const begin = i ? row.end[i - 1] : row.x[i] - (row.over ?? 1); // a reading stands for the steps before it
      const left = Math.max(area.left, x.toPixel(begin + 0.5));
      const right = Math.min(area.right, x.toPixel(row.end[i] + 0.5));
      if (right <= left) continue;
      const value = this._value(row, i);
      const bad = value === null && row.values[i] === null && this.kind !== "skill"; // a level may have no skill
      if (value === null && !bad) continue;
      context.fillStyle = value === null ? colour("--error") : shade(map, (value - low) / (high - low));
      if (value === null) context.fillRect(left, top + height * 0.35, Math.max(1, right - left), Math.max(1, height * 0.3));
      else context.fillRect(left, top, right - left + 0.6, height + 0.4);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area */
  _paintSide(context, area) {
    context.fillStyle = colour("--chart-text");
    context.textAlign = "right";
    context.textBaseline = "top";
    this._sideWords(context, this.spec.top, area.left - 8, area.top, area.left - 10);
    context.textBaseline = "bottom";
    this._sideWords(context, this.spec.bottom, area.left - 8, area.bottom, area.left - 10);
  }

  /** @param {CanvasRenderingContext2D} context @param {string} words @param {number} right @param {number} at @param {number} room */
  _sideWords(context, words, right, at, room) {
    const lines = words.split(" ");
    const size = 13;
    lines.forEach((line, place) => {
      const shift = context.textBaseline === "top" ? place * size : (place - lines.length + 1) * size;
      context.fillText(line, right, at + shift, room);
    });
  }

  /** @param {number} low @param {number} high */
  _paintLegend(low, high) {
    const words = (/** @type {number} */ value) => (this.kind === "value" ? number(10 ** value) : `× ${number(2 ** value)}`);
    say(this._low, this.kind === "skill" ? "skill 0 or less" : words(low));
    say(this._high, this.kind === "skill" ? `${MOST_SKILL} or more; in the middle the linear filter, 1` : words(high));
    const context = this._ramp.getContext("2d");
    for (let i = 0; i < LEGEND_STEPS; i += 1) {
      context.fillStyle = shade(this.kind === "value" ? "ember" : "around", i / (LEGEND_STEPS - 1));
      context.fillRect(i * 2, 0, 2, 10);
    }
  }

  _paintCursor() {
    if (!this._painted) return;
    const { area, x, rows } = this._painted;
    const over = this.panel.over(this._view.cursor !== null || this._selection !== null);
    if (over) drawCursor(over, area, x, this._view, this._selection, []);
    say(this._here, this._hereWords(rows, area));
  }

  /** @param {Row[]} rows @param {import("./axis.js").Area} area */
  _hereWords(rows, area) {
    if (this._view.cursor === null || this._height === undefined || !rows.length) return "";
    const row = rows[Math.min(rows.length - 1, Math.max(0, Math.floor(((this._height - area.top) / (area.bottom - area.top)) * rows.length)))];
    const place = lowerBound(row.end, this._view.cursor);
    const begin = (row.x[0] ?? 0) - (row.over ?? 1);
    if (place >= row.x.length || this._view.cursor < begin) return `${row.label}: not measured at ${whereWords(this._view, this._view.cursor)}`;
    const value = row.values[place];
    return `${row.label}: ${value === null ? (this.kind === "skill" ? "no skill" : "not finite") : number(value)} at ${whereWords(this._view, this._view.cursor)}`;
  }

  _describe() {
    const rows = (this.spec.rows(this.kind) ?? []).filter((row) => row.x.length);
    const latest = rows.map((row) => ({ label: row.label, value: row.values[row.values.length - 1] ?? null, first: row.values.find((each) => each !== null) ?? null }));
    const known = latest.filter((each) => each.value !== null).sort((a, b) => Number(b.value) - Number(a.value));
    const summary = known.length
      ? `Newest values: highest ${number(known[0].value)} at ${known[0].label}, lowest ${number(known[known.length - 1].value)} at ${known[known.length - 1].label}, over ${count(rows[0].x.length)} spans of steps.`
      : "Nothing to draw yet.";
    return { summary, head: ["row", "first", "newest"], rows: latest.map((each) => [each.label, number(each.first), number(each.value)]) };
  }
}
