/**
 * The frame of a chart: a figure with title, legend, two canvases and the same in words and numbers.
 *
 * The lower canvas has the data, the upper one the cursor: moving the cursor over ten charts paints ten lines.
 */

import { fill, h, say } from "../element.js";
import { onTheme } from "../theme.js";
import { paintNow, paintSoon } from "./paint.js";

/** @type {Map<Element, Panel>} */
const panels = new Map();

const sight = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) panels.get(entry.target)?.see(entry.isIntersecting);
  },
  { rootMargin: "160px" },
);

const SOON = 300, LATER = 5000; // ms until a chart that changed, or that only grew, is told in words

let letter = 0; // px

const sizes = new ResizeObserver((entries) => {
  letter = 0;
  for (const entry of entries) panels.get(/** @type {Element} */ (entry.target.closest("figure")))?.fit();
});

addEventListener("beforeprint", () => {
  for (const panel of panels.values()) panel.see(true);
  for (const panel of panels.values()) panel.fit();
  paintNow();
});

export class Panel {
  /**
   * @param {{title: string, note?: string, className?: string, onSee?: (seen: boolean) => void}} options
   * @param {(grown: boolean) => void} paintData `grown`: all that was painted is still so, but for its end
   * @param {() => void} paintCursor @param {() => {summary: string, head: string[], rows: string[][]}} describe
   */
  constructor({ title, note, className = "", onSee = () => {} }, paintData, paintCursor, describe) {
    this.seen = false;
    this.width = 0;
    this.height = 0;
    this._onSee = onSee;
    this._describe = describe;
    this._dirty = true;
    this._paintData = () => {
      if (!this.seen || !this.width) return;
      const grown = !this._dirty;
      this._dirty = false;
      paintData(grown);
      paintCursor();
      this._describeSoon(grown ? LATER : SOON);
    };
    this._paintCursor = () => {
      if (this.seen && this.width && !this._dirty) paintCursor();
    };
    this._build(title, note, className);
    panels.set(this.figure, this);
    sight.observe(this.figure);
    sizes.observe(this.plot);
    this._endTheme = onTheme(() => this.change());
  }

  /** @param {string} title @param {string | undefined} note @param {string} className */
  _build(title, note, className) {
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.overlay = h("canvas.overlay", { tabindex: 0, role: "img", "aria-label": title });
    this.message = h("p.chart-empty", { hidden: true });
    this.plot = h("div.plot", this.canvas, this.overlay, this.message);
    this.legend = h("ul.legend");
    this.tools = h("div.tools");
    this.summary = h("p.hidden-text");
    this.table = h("table");
    this.numbers = h("details.numbers", { on: { toggle: () => this._fillTable() } },
      h("summary", "Numbers"), h("div.scroll", this.table));
    this.figure = h("figure.chart", { class: `chart ${className}` },
      h("figcaption", h("h3", { title: note }, title), this.tools), this.legend, this.plot, this.numbers, this.summary);
    this.title = title;
  }

  /** @param {boolean} seen */
  see(seen) {
    const before = this.seen;
    this.seen = seen;
    if (seen !== before) this._onSee(seen);
    if (seen && this._dirty) paintSoon(this._paintData);
  }

  /** The data changed. */
  change() {
    this._dirty = true;
    if (this.seen) paintSoon(this._paintData);
  }

  /** There is more at the end of the data. */
  grow() {
    if (this.seen) paintSoon(this._paintData);
    else this._dirty = true;
  }

  /** Only the cursor moved. */
  move() {
    if (this.seen) paintSoon(this._paintCursor);
  }

  fit() {
    const { width, height } = this.plot.getBoundingClientRect();
    if (Math.abs(width - this.width) < 0.5 && Math.abs(height - this.height) < 0.5) return;
    this.width = width;
    this.height = height;
    this.change();
  }

  /** The upper canvas, cleared; null where there is nothing on it and nothing comes. @param {boolean} used */
  over(used) {
    const before = this._over;
    this._over = used;
    return used || before ? this.context(this.overlay) : null;
  }

  /** A context in CSS pixels. @param {HTMLCanvasElement} canvas @param {boolean} [clear] @returns {CanvasRenderingContext2D} */
  context(canvas, clear = true) {
    const ratio = Math.min(devicePixelRatio || 1, 3);
    const [wide, high] = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (clear) context.clearRect(0, 0, this.width, this.height);
    letter ||= Math.max(11, parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.74);
    context.font = `${letter}px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif`;
    return context;
  }

  /** Words in the place of a chart that has nothing to draw. @param {string | null} words */
  tell(words) {
    this.message.hidden = words === null;
    say(this.message, words ?? "");
  }

  /** Screen readers and tables do not need sixty updates a second. @param {number} wait ms */
  _describeSoon(wait) {
    if (this._timer && (wait === LATER || !this._later)) return;
    clearTimeout(this._timer);
    this._later = wait === LATER;
    this._timer = setTimeout(() => {
      this._timer = 0;
      const { summary } = this._describe();
      say(this.summary, summary);
      this.overlay.setAttribute("aria-label", `${this.title}. ${summary}`);
      this._fillTable();
    }, wait);
  }

  _fillTable() {
    if (!this.numbers.open) return;
    const { head, rows } = this._describe();
    fill(this.table,
      h("thead", h("tr", head.map((word) => h("th.number", { scope: "col" }, word)))),
      h("tbody", rows.map((row) => h("tr", row.map((word) => h("td.number", word))))));
  }

  close() {
    sight.unobserve(this.figure);
    sizes.unobserve(this.plot);
    panels.delete(this.figure);
    this._endTheme();
    clearTimeout(this._timer);
  }
}
