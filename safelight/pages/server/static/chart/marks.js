/**
 * What is drawn over and under the lines: numbers that are not finite, refused updates, findings, error bars, the best.
 */

import { colour } from "../theme.js";
import { stroke } from "./axis.js";

const TICK = 9;

/** A tick at the lower edge for each span with a NaN or an infinity: never skipped. @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("../live/readings.js").Series} series */
export function drawNonfinite(context, area, x, series) {
  context.strokeStyle = colour("--error");
  context.lineWidth = 2;
  eachSpan(area, x, series, (at, place) => {
    if (series.nonfinite[place] > 0) stroke(context, at, area.bottom - TICK, at, area.bottom);
  });
}

/** A tick with a head at the upper edge for each span with a refused update. @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("../live/readings.js").Series} series */
export function drawRefused(context, area, x, series) {
  context.strokeStyle = context.fillStyle = colour("--warning");
  context.lineWidth = 1.5;
  eachSpan(area, x, series, (at, place) => {
    if (!(Number(series.high[place]) > 0)) return;
    stroke(context, at, area.top, at, area.top + TICK);
    context.beginPath();
    context.moveTo(at - 4, area.top - 1);
    context.lineTo(at + 4, area.top - 1);
    context.lineTo(at, area.top + 5);
    context.fill();
  });
}

/** @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("../live/readings.js").Series} series @param {(at: number, place: number) => void} draw */
function eachSpan(area, x, series, draw) {
  for (let place = 0; place < series.x.length; place += 1) {
    const at = x.toPixel((series.x[place] + series.end[place]) / 2);
    if (at >= area.left - 1 && at <= area.right + 1) draw(at, place);
  }
}

/** Vertical lines where something was found or done; a wash over the steps for which it was true. @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x @param {import("./view.js").Mark[]} marks */
export function drawMarks(context, area, x, marks) {
  for (const mark of marks) {
    const at = x.toPixel(mark.step);
    const tone = colour(`--${mark.tone}`);
    if (mark.over) {
      const from = Math.max(area.left, at), to = Math.min(area.right, x.toPixel(mark.over));
      context.globalAlpha = 0.08;
      context.fillStyle = tone;
      if (to > from) context.fillRect(from, area.top, to - from, area.bottom - area.top);
      context.globalAlpha = 1;
    }
    if (at < area.left - 1 || at > area.right + 1) continue;
    context.strokeStyle = tone;
    context.lineWidth = 1;
    context.setLineDash([2, 3]);
    stroke(context, Math.round(at) + 0.5, area.top, Math.round(at) + 0.5, area.bottom);
    context.setLineDash([]);
    context.fillStyle = tone;
    context.beginPath();
    context.arc(Math.round(at) + 0.5, area.top, 3, 0, 7);
    context.fill();
  }
}

/** @param {CanvasRenderingContext2D} context @param {number} at @param {number} top @param {number} bottom @param {string} tone */
export function drawErrorBar(context, at, top, bottom, tone) {
  context.strokeStyle = tone;
  context.lineWidth = 1.5;
  stroke(context, at, top, at, bottom);
  stroke(context, at - 4, top, at + 4, top);
  stroke(context, at - 4, bottom, at + 4, bottom);
}

/** A ring around the best, with its word. @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {number} at @param {number} height */
export function drawBest(context, area, at, height) {
  context.strokeStyle = colour("--good");
  context.lineWidth = 2;
  context.beginPath();
  context.arc(at, height, 7.5, 0, 7);
  context.stroke();
  context.fillStyle = colour("--good");
  context.textBaseline = "bottom";
  const right = at > (area.left + area.right) / 2;
  context.textAlign = right ? "right" : "left";
  context.fillText("best", at + (right ? -11 : 11), height - 5);
}
