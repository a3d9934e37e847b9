/**
 * What the upper canvas shows: the linked cursor, the dots on the lines, and the part being dragged over.
 */

import { colour } from "../theme.js";
import { stroke, whereWords } from "./axis.js";

/**
 * @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {import("./axis.js").Across} x
 * @param {import("./view.js").View} view @param {[number, number] | null} selection
 * @param {{pixel: number, colour: string}[]} dots height and colour of each line at the cursor
 */
export function drawCursor(context, area, x, view, selection, dots) {
  if (selection) {
    context.fillStyle = colour("--lamp-soft");
    const from = Math.max(area.left, selection[0]);
    context.fillRect(from, area.top, Math.min(area.right, selection[1]) - from, area.bottom - area.top);
  }
  if (view.cursor === null) return;
  const at = x.toPixel(view.cursor);
  if (at < area.left - 1 || at > area.right + 1) return;
  context.strokeStyle = colour("--ink-faint");
  context.lineWidth = 1;
  stroke(context, Math.round(at) + 0.5, area.top, Math.round(at) + 0.5, area.bottom);
  for (const dot of dots) {
    context.beginPath();
    context.arc(at, dot.pixel, 3.5, 0, 7);
    context.fillStyle = dot.colour;
    context.strokeStyle = colour("--ground");
    context.lineWidth = 2;
    context.fill();
    context.stroke();
  }
  drawLabel(context, area, at, whereWords(view, view.cursor));
}

/** @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {number} at @param {string} words */
function drawLabel(context, area, at, words) {
  const width = context.measureText(words).width + 12;
  const left = Math.min(Math.max(2, at - width / 2), area.right + 10 - width);
  context.fillStyle = colour("--raised");
  context.strokeStyle = colour("--hairline-strong");
  context.lineWidth = 1;
  context.beginPath();
  context.roundRect(left, area.bottom + 3.5, width, 18, 4);
  context.fill();
  context.stroke();
  context.fillStyle = colour("--ink");
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(words, left + 6, area.bottom + 13);
}
