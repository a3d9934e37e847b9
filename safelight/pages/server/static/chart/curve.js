/**
 * One curve on a canvas: the band from lowest to highest, the mean, the smoothed line, and points where there are few.
 */

import { h } from "../element.js";
import { colour } from "../theme.js";
import { drawErrorBar } from "./marks.js";

/**
 * @typedef {import("../live/readings.js").Series} Series
 * @typedef {object} Drawing
 * @property {Series} series
 * @property {Series | undefined} errors standard errors, reading by reading
 * @property {number} from first span that is drawn
 * @property {number} to span after the last one
 * @property {import("./axis.js").Across} x
 * @property {import("./scale.js").Scale} y
 * @property {boolean} smooth
 * @property {boolean} sparse few enough are seen to show each as a point
 */

const SPARSE = 14; // pixels for each span from which on points are drawn
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [1, 2], [12, 4], [6, 2, 1, 2]];

/** @param {number} width pixels @param {number} count spans on them */
export function isSparse(width, count) {
  return count > 0 && width / count >= SPARSE;
}

/** The dash that a line has beside its colour. @param {number} place */
export function dashOf(place) {
  return DASHES[place % DASHES.length];
}

/** @param {CanvasRenderingContext2D} context @param {import("./line.js").Line} line @param {Drawing} drawing */
export function drawCurve(context, line, drawing) {
  const { series } = drawing;
  const tone = colour(`--line-${line.colour}`);
  const smooth = line.band && drawing.smooth ? series.smooth : undefined;
  if (line.band) drawBand(context, drawing, tone);
  context.strokeStyle = tone;
  context.setLineDash(line.dash ?? []);
  context.globalAlpha = smooth ? 0.45 : 1;
  context.lineWidth = smooth ? 1 : 1.8;
  trace(context, series.mean, drawing);
  context.globalAlpha = 1;
  context.lineWidth = 2.2;
  if (smooth) trace(context, smooth, drawing);
  context.setLineDash([]);
  drawPoints(context, drawing, tone);
}

/** @param {CanvasRenderingContext2D} context @param {Drawing} drawing @param {string} tone */
function drawBand(context, { series, from, to, x, y }, tone) {
  context.fillStyle = tone;
  context.globalAlpha = 0.22;
  for (let i = from; i < to; i += 1) {
    const low = series.low[i], high = series.high[i];
    if (low === null || high === null) continue;
    const left = x.toPixel(series.x[i] - 0.5), right = x.toPixel(series.end[i] + 0.5);
    const top = y.toPixel(high), bottom = y.toPixel(low);
    if (bottom - top > 0.5) context.fillRect(left, top, Math.max(1, right - left), bottom - top);
  }
  context.globalAlpha = 1;
}

/** A line with a gap wherever nothing is finite. @param {CanvasRenderingContext2D} context @param {(number | null)[]} values @param {Drawing} drawing */
function trace(context, values, drawing) {
  context.lineJoin = "round";
  context.beginPath();
  let broken = true;
  for (let i = drawing.from; i < drawing.to; i += 1) {
    const value = values[i];
    if (value === null || value === undefined) {
      broken = true;
      continue;
    }
    if (broken) context.moveTo(middle(drawing, i), drawing.y.toPixel(value));
    else context.lineTo(middle(drawing, i), drawing.y.toPixel(value));
    broken = false;
  }
  context.stroke();
}

/** Few readings are shown one by one, with their errors. @param {CanvasRenderingContext2D} context @param {Drawing} drawing @param {string} tone */
function drawPoints(context, drawing, tone) {
  const { series, errors, from, to, y } = drawing;
  if (to - from < 1 || (!drawing.sparse && !errors)) return;
  context.fillStyle = tone;
  for (let i = from; i < to; i += 1) {
    const mean = series.mean[i];
    if (mean === null) continue;
    const error = errors?.mean[i];
    if (error) drawErrorBar(context, middle(drawing, i), y.toPixel(mean + error), y.toPixel(mean - error), tone);
    context.beginPath();
    context.arc(middle(drawing, i), y.toPixel(mean), 2.6, 0, 7);
    context.fill();
  }
}

/** @param {Drawing} drawing @param {number} place */
function middle({ series, x }, place) {
  return x.toPixel((series.x[place] + series.end[place]) / 2);
}

/** A short piece of the line for the legend. @param {import("./line.js").Line} line */
export function swatch(line) {
  const canvas = h("canvas.swatch", { width: 44, height: 16, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  context.strokeStyle = colour(`--line-${line.colour}`);
  context.lineWidth = 4;
  context.setLineDash((line.dash ?? []).map((part) => part * 2));
  context.beginPath();
  context.moveTo(0, 8);
  context.lineTo(44, 8);
  context.stroke();
  return canvas;
}
