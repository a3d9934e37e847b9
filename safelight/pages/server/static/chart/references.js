/**
 * Levels that lines are compared with: dashed lines with their names.
 */

import { colour } from "../theme.js";
import { number } from "../words.js";
import { stroke } from "./axis.js";

/** @typedef {{label: string, value?: number, signal?: string}} Reference a level that is known, or the newest reading of a signal */

const ROOM = 6; // pixels below the upper edge from which on a name fits above its line
const LETTERS = 16; // pixels above the lower edge from which on it fits below

/** Those that have a value. @param {Reference[] | undefined} references @param {import("../live/readings.js").Readings} readings @returns {{label: string, value: number}[]} */
export function known(references, readings) {
  return (references ?? []).flatMap(({ label, value, signal }) => {
    const level = value ?? (signal ? readings.get(signal)?.mean.at(-1) : null);
    return level === null || level === undefined ? [] : [{ label, value: level }];
  });
}

/** Levels to compare with, each with its name where the lines do not end; one above the axis is named at the upper edge. @param {CanvasRenderingContext2D} context @param {import("./axis.js").Area} area @param {import("./scale.js").Scale} y @param {{label: string, value: number}[]} references @param {number} newest of the lines */
export function drawReferences(context, area, y, references, newest) {
  context.strokeStyle = context.fillStyle = colour("--chart-text");
  context.lineWidth = 1;
  context.textAlign = "right";
  for (const { label, value } of references) {
    const at = Math.round(y.toPixel(value)) + 0.5;
    if (at > area.bottom + 1 || (value <= 0 && y.toValue(area.bottom) > 0)) continue; // a logarithm has no zero
    const outside = at < area.top - 1, below = outside || at < area.top + ROOM || (newest >= value && at < area.bottom - LETTERS);
    context.textBaseline = below ? "top" : "bottom";
    context.fillText(outside ? `${label}: ${number(value)} ↑` : label, area.right - 2, outside ? area.top : at + (below ? 4 : -3));
    if (outside) continue;
    context.setLineDash([5, 4]);
    stroke(context, area.left, at, area.right, at);
    context.setLineDash([]);
  }
}
