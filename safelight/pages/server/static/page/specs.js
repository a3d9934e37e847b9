/**
 * Which charts a run has, and which signals they draw.
 */

import { dashOf } from "../chart/curve.js";

/** @typedef {import("../chart/line.js").Spec} Spec */

export const LOSS_LINES = {
  raw: [{ signal: "loss/mean", label: "loss", colour: 1, band: true }],
  whitened: [{ signal: "loss/whitened", label: "loss over the usual at its noise level", colour: 2, band: true }],
};

/** @returns {Spec} */
export function lossSpec() {
  return {
    name: "loss", title: "Loss", y: "log", lines: LOSS_LINES.raw, refused: "update/refused", className: "tall",
    note: "Band: lowest to highest of each span. Thin: mean. Thick: smoothed. Red ticks below: not finite. Triangles above: refused updates.",
    empty: "The loss appears with the first steps.",
  };
}

/** @param {(name: string) => any} fact of the run as it is known now @returns {Spec[]} */
export function smallSpecs(fact) {
  return [
    {
      name: "skill", title: "Skill", bottom: -1,
      note: "On the fixed set, at all noise levels: 0 knows only the mean image and one variance, 1 is the best linear filter of the data. Only a model that memorises comes to the floor.",
      lines: [
        { signal: "skill/raw", label: "raw", colour: 6, dash: dashOf(2) },
        { signal: "skill/ema", label: "averaged", colour: 1 },
        { signal: "skill/held", label: "held out, averaged", colour: 2, dash: dashOf(1) },
      ],
      references: [
        { label: "no shape learnt", value: 0 },
        { label: "linear filter", value: 1 },
        { label: "floor (memorised)", signal: "skill/exact" },
        { label: "training images alone, held out", signal: "skill/held_exact" },
      ],
      empty: "Appears with the first checkpoint.",
    },
    {
      name: "distance", title: "Distance from real images", zero: true, best: () => fact("best_step"),
      note: "Fréchet distance as FID is computed: all features, nothing corrected, with standard errors. Lower is better. As many real images are as far from the others as the line says: no model can be expected below it.",
      lines: [{ signal: "quality/distance", label: fact("distance_name") ?? "distance", colour: 3, error: "quality/distance_error" }],
      references: [
        { label: "real images", signal: "quality/real_distance" },
        { label: "target", signal: "quality/target_distance" },
      ],
      empty: "Appears with the first evaluation of samples.",
    },
    {
      name: "probes", title: "Loss on the fixed set", y: "log",
      note: "Always the same images, timesteps and noise. The gap between trained and held-out images is generalisation.",
      lines: [
        { signal: "probe/raw", label: "raw", colour: 6, dash: dashOf(2) },
        { signal: "probe/ema", label: "averaged", colour: 1 },
        { signal: "probe/held_raw", label: "held out, raw", colour: 7, dash: dashOf(3) },
        { signal: "probe/held_ema", label: "held out, averaged", colour: 2, dash: dashOf(1) },
      ],
      empty: "Appears with the first checkpoint.",
    },
    {
      name: "gradient", title: "Gradient norm", y: "log", refused: "update/refused",
      lines: [
        { signal: "gradient/norm", label: "norm", colour: 2, band: true },
        { signal: "gradient/limit", label: "clip limit", colour: 8, dash: dashOf(1), none: "none" },
      ],
    },
    { name: "rate", title: "Learning rate", zero: true, lines: [{ signal: "optimizer/lr", label: "rate", colour: 8 }] },
    {
      name: "diversity", title: "Diversity of samples", zero: true,
      note: "Against real images: 1 is as varied as they are.",
      lines: [
        { signal: "diversity/variance", label: "variance", colour: 1 },
        { signal: "diversity/vendi", label: "different samples", colour: 3, dash: dashOf(1) },
        { signal: "quality/coverage", label: "coverage", colour: 5, dash: dashOf(3) },
        { signal: "copies/share", label: "copies", colour: 6, dash: dashOf(2) },
      ],
      empty: "Appears with the first evaluation of samples.",
    },
    {
      name: "speed", title: "Throughput", unit: "images/s", zero: true,
      lines: [{ signal: "speed/images", label: "images per second", colour: 3, band: true }],
    },
    {
      name: "waiting", title: "Waiting for data", zero: true, note: "Share of the step spent waiting for its batch.",
      lines: [{ signal: "speed/data_wait", label: "share of the step", colour: 5, band: true }],
    },
    {
      name: "memory", title: "Memory", unit: "bytes", zero: true,
      lines: [{ signal: "system/memory", label: "taken", colour: 7, band: true }],
    },
  ];
}

const MOST_OWN = 24; // charts of numbers that the loop logged itself

/** Whether the loop logged it itself. @param {any} signal */
export function isOwn(signal) {
  return !signal.meaning && !String(signal.name).startsWith("check/");
}

/** Numbers of the loop's own, which no page knows: a chart for each. @param {any[]} signals @returns {Spec[]} */
export function ownSpecs(signals) {
  const own = signals.filter((signal) => isOwn(signal)).slice(0, MOST_OWN);
  return own.map(({ name }) => ({
    name: `own-${name}`, title: String(name), note: "A number that the loop logged.", streamed: false,
    lines: [{ signal: String(name), label: String(name), colour: 4, band: true }],
  }));
}

/** What is pushed while a run goes on; every tab asks for the same, so that they can share a stream. */
export function liveSignals() {
  const specs = [lossSpec(), ...smallSpecs(() => null)];
  const names = specs.flatMap((spec) => [...spec.lines.flatMap((line) => [line.signal, line.error]), spec.refused, ...(spec.references ?? []).map((each) => each.signal)]);
  return [...new Set([...names, "loss/whitened", "loss/level/00"])].filter((name) => name !== undefined).map(String);
}
