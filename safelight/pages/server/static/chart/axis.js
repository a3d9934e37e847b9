/**
 * The x axis of a view in steps, time or images, and the grid with its numbers.
 */

import { colour } from "../theme.js";
import { count, number } from "../words.js";
import { clockTicks, linear } from "./scale.js";

/**
 * @typedef {{left: number, right: number, top: number, bottom: number}} Area pixels
 * @typedef {{toPixel: (step: number) => number, toStep: (pixel: number) => number, ticks: {pixel: number, words: string}[]}} Across
 */

/** @param {import("./view.js").View} view @param {Area} area @returns {Across} */
export function across(view, area) {
  const { first, last } = view.shown();
  const wanted = Math.max(2, Math.floor((area.right - area.left) / 80));
  if (view.axis === "time" && view.clock) {
    const clock = view.clock;
    const from = clock.time(first), to = clock.time(last);
    const scale = linear(from, to, area.left, area.right, wanted);
    return {
      toPixel: (step) => scale.toPixel(clock.time(step)),
      toStep: (pixel) => clock.step(scale.toValue(pixel)),
      ticks: clockTicks(from, to, wanted).map((value) => ({ pixel: scale.toPixel(value), words: clockWords(value, to) })),
    };
  }
  const factor = view.axis === "images" && view.batch ? view.batch : 1;
  const scale = linear(first * factor, last * factor, area.left, area.right, wanted);
  return {
    toPixel: (step) => scale.toPixel(step * factor),
    toStep: (pixel) => scale.toValue(pixel) / factor,
    ticks: scale.ticks.filter((value) => factor > 1 || Number.isInteger(value)).map((value) => ({ pixel: scale.toPixel(value), words: short(value) })),
  };
}

/** Where the cursor is, in words of the axis. @param {import("./view.js").View} view @param {number} step */
export function whereWords(view, step) {
  if (view.axis === "time" && view.clock) return `${clockWords(view.clock.time(step), Infinity)} · step ${count(step)}`;
  if (view.axis === "images" && view.batch) return `${short(step * view.batch)} images · step ${count(step)}`;
  return `step ${count(step)}`;
}

/** @param {number} value */
function short(value) {
  if (Math.abs(value) >= 1e6) return `${Number((value / 1e6).toPrecision(4))} M`;
  if (Math.abs(value) >= 1e4) return `${Number((value / 1e3).toPrecision(4))} k`;
  return count(value);
}

/** @param {number} seconds @param {number} longest */
function clockWords(seconds, longest) {
  if (longest < 90) return `${Number(seconds.toPrecision(3))} s`;
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  if (longest > 7200 && longest !== Infinity) return `${hours}:${String(minutes).padStart(2, "0")} h`;
  const tail = `${String(minutes).padStart(hours ? 2 : 1, "0")}:${String(rest).padStart(2, "0")}`;
  return hours ? `${hours}:${tail}` : tail;
}

/**
 * @param {CanvasRenderingContext2D} context @param {Area} area @param {Across} x
 * @param {import("./scale.js").Scale} y @param {(value: number) => string} [words] of the y axis
 */
export function drawGrid(context, area, x, y, words = tickWords) {
  context.fillStyle = colour("--chart-text");
  context.textAlign = "right";
  context.textBaseline = "middle";
  drawLevels(context, area, y, (tick, at) => context.fillText(words(tick), area.left - 8, at));
  drawTicksBelow(context, area, x);
}

/** The lines across. @param {CanvasRenderingContext2D} context @param {Area} area @param {import("./scale.js").Scale} y @param {(tick: number, at: number) => void} [name] */
export function drawLevels(context, area, y, name = () => {}) {
  context.strokeStyle = colour("--chart-grid");
  context.lineWidth = 1;
  for (const tick of y.ticks) {
    const at = Math.round(y.toPixel(tick)) + 0.5;
    if (at < area.top - 2 || at > area.bottom + 2) continue;
    stroke(context, area.left, at, area.right, at);
    name(tick, at);
  }
}

/** @param {CanvasRenderingContext2D} context @param {Area} area @param {Across} x */
export function drawTicksBelow(context, area, x) {
  context.fillStyle = colour("--chart-text");
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const tick of x.ticks) {
    if (tick.pixel < area.left - 1 || tick.pixel > area.right + 1) continue;
    const half = context.measureText(tick.words).width / 2;
    context.fillText(tick.words, Math.min(Math.max(tick.pixel, half), area.right + 10 - half), area.bottom + 7);
  }
}

/** @param {number} value */
export function tickWords(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${number(value / 1e9)} G`;
  if (size >= 1e6) return `${number(value / 1e6)} M`;
  if (size >= 1e4) return `${number(value / 1e3)} k`;
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace(".0e", "e").replace("e-", "e−");
  return number(value);
}

/** @param {CanvasRenderingContext2D} context @param {number} x1 @param {number} y1 @param {number} x2 @param {number} y2 */
export function stroke(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
}
