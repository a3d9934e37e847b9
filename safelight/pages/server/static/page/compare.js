/**
 * Runs side by side: which is better, the settings that differ, samples of the same stage, curves, noise levels.
 */

import { dashOf } from "../chart/curve.js";
import { LineChart } from "../chart/line.js";
import { View } from "../chart/view.js";
import { fill, h, say } from "../element.js";
import { Readings } from "../live/readings.js";
import { compareAddress, runAddress } from "../router.js";
import { count, number } from "../words.js";
import { levelWords } from "./charts.js";
import { plainSetting } from "./data.js";
import { ofKind } from "./samples.js";
import { liveSignals } from "./specs.js";
import { Stages } from "./stages.js";
import { buildToolbar } from "./toolbar.js";

/** @type {{name: string, title: string, signal: string, error?: string, y?: "log", zero?: boolean, band?: boolean, unit?: string}[]} */
const CHARTS = [
  { name: "distance", title: "Distance from real images", signal: "quality/distance", error: "quality/distance_error", zero: true },
  { name: "probe", title: "Loss on the fixed set, averaged weights", signal: "probe/ema", y: "log" },
  { name: "held", title: "Loss on held-out images, averaged weights", signal: "probe/held_ema", y: "log" },
  { name: "loss", title: "Loss", signal: "loss/mean", y: "log", band: true },
  { name: "gradient", title: "Gradient norm", signal: "gradient/norm", y: "log", band: true },
  { name: "rate", title: "Learning rate", signal: "optimizer/lr", zero: true },
  { name: "speed", title: "Throughput", signal: "speed/images", zero: true, unit: "images/s", band: true },
];
const COLOURS = [1, 2, 3, 5, 4, 7, 8, 6];
const MOST = 8;

/** @param {HTMLElement} main @param {import("../source/server.js").Source} source @param {import("../router.js").Route} route @returns {import("../main.js").Page} */
export function openCompare(main, source, route) {
  document.title = "Compare · Safelight";
  const list = h("ul.chooser");
  const body = h("div.compare-body", h("p.quiet", { role: "status" }, "Loading…"));
  fill(main, h("div.page-head", h("div", h("h1", "Compare"), h("p.quiet", "Choose up to eight runs."))), list, body);
  /** @type {Comparison | null} */
  let comparison = null;
  let open = true;
  source.runs().then(({ runs }) => open && drawChooser(list, runs, route.ids), (error) => say(list, error.message));
  if (route.ids.length < 2) fill(body, h("p.quiet", route.ids.length ? "One more, and they stand side by side." : "None is chosen yet."));
  else load(source, route.ids).then(
    (found) => {
      if (open) comparison = new Comparison(body, source, found.runs, found);
    },
    (error) => open && fill(body, h("p.notice.bad", error.message)),
  );
  return {
    close: () => {
      open = false;
      comparison?.close();
    },
  };
}

/** @param {import("../source/server.js").Source} source @param {string[]} ids */
async function load(source, ids) {
  const [compared, ...runs] = await Promise.all([source.compare(ids), ...ids.map((id) => source.run(id))]);
  return { settings: compared.settings ?? {}, levels: compared.levels ?? [], verdict: compared.verdict, runs };
}

/** @param {HTMLElement} list @param {any[]} runs @param {string[]} chosen */
function drawChooser(list, runs, chosen) {
  fill(list, runs.map((run) => {
    const place = chosen.indexOf(run.id);
    const box = h("input", { type: "checkbox", checked: place >= 0, disabled: place < 0 && chosen.length >= MOST, on: { change: () => {
      location.hash = compareAddress(box.checked ? [...chosen, run.id] : chosen.filter((id) => id !== run.id));
    } } });
    return h("li", h("label", box, place >= 0 && key(place), run.name));
  }));
}

/** The colour that a run has in every chart. @param {number} place */
function key(place) {
  return h("span.key", { class: `key line-${COLOURS[place]}`, "aria-hidden": "true" });
}

class Comparison {
  /** @param {HTMLElement} body @param {import("../source/server.js").Source} source @param {any[]} runs @param {{settings: Record<string, any[]>, levels: any[], verdict: any}} compared */
  constructor(body, source, runs, { settings, levels, verdict }) {
    this.view = new View();
    this.view.batch = Math.max(...runs.map((run) => run.batch_size ?? 0));
    this.view.suggestSmooth(Math.max(...runs.map((run) => run.steps ?? run.cursor)));
    this.view.setExtent(0, Math.max(1, ...runs.map((run) => run.cursor)));
    this._readings = runs.map((run) => new Readings(source, run.id, this.view, (names) => this._change(names)));
    this.charts = CHARTS.map((chart) => this._chart(chart, runs));
    this._stages = runs.map((run, place) => {
      const stages = new Stages({ label: `samples of ${run.name}`, what: `Samples of ${run.name}`, empty: "No samples yet.", controls: false }, this.view, (picture) => source.picture(run.id, picture));
      stages.setPictures(ofKind(run.pictures, "samples"));
      return h("section", h("h3", key(place), h("a", { href: runAddress(run.id) }, run.name)), stages.element);
    });
    this.toolbar = buildToolbar(this.view);
    fill(body,
      verdict && h("p.verdict", { class: `verdict ${verdict.best === null ? "" : "good"}`, role: "status" }, verdict.sentence.replaceAll("`", "")),
      h("section", h("h2", "Settings that differ"), settingTable(settings, runs)),
      h("section", h("h2", "Samples at the same stage"), this._slider(runs), h("div.beside", this._stages)),
      h("section", h("h2", "Curves"), this.toolbar.element, h("div.chart-grid.two", this.charts.map((chart) => chart.figure))),
      h("section", h("h2", "By noise level"), levelTable(levels, runs)));
    this._stops = runs.map((run, place) => source.live(run.id, { after: run.cursor, version: run.version, signals: liveSignals() }, (event) => this._hear(place, event)));
  }

  /** @param {typeof CHARTS[number]} chart @param {any[]} runs */
  _chart({ name, title, signal, error, y, zero, band, unit }, runs) {
    const lines = runs.map((run, place) => ({ signal, error, label: run.name, colour: COLOURS[place], dash: dashOf(place), band, readings: this._readings[place] }));
    return new LineChart({ name: `compare.${name}`, title, lines, y, zero, unit, empty: "None of these runs measured it." }, this.view, this._readings[0]);
  }

  /** @param {string[]} [names] */
  _change(names) {
    for (const chart of this.charts ?? []) chart.change(names);
  }

  /** One slider for all: the stage that each had reached by then. @param {any[]} runs */
  _slider(runs) {
    const steps = [...new Set(runs.flatMap((run) => ofKind(run.pictures, "samples").map((picture) => picture.step)))].sort((one, two) => one - two);
    const words = h("output.caption", "newest of each");
    const slider = h("input.stage", { type: "range", min: 0, max: Math.max(0, steps.length - 1), step: 1, value: Math.max(0, steps.length - 1), disabled: steps.length < 2, "aria-label": "Stage of all runs", on: { input: () => {
      const step = steps[Number(slider.value)];
      say(words, `after step ${count(step)}`);
      slider.setAttribute("aria-valuetext", `after step ${count(step)}`);
      this.view.point(step - 1);
    } } });
    return h("div.stage-bar", slider, words);
  }

  /** @param {number} place @param {import("../source/server.js").LiveEvent} event */
  _hear(place, event) {
    if (event.kind === "reset") this._readings[place].restart();
    if (event.kind !== "delta") return;
    this.view.setExtent(0, Math.max(this.view.extent.last, event.data.cursor));
    this._readings[place].add(event.data.series ?? {});
  }

  close() {
    for (const stop of this._stops) stop();
    for (const part of [...this.charts, ...this._readings, this.toolbar]) part.close();
  }
}

/** The newest loss and skill of each noise level; the best of each row stands out. @param {any[]} levels @param {any[]} runs */
function levelTable(levels, runs) {
  const kinds = [{ key: "losses", title: "loss", best: Math.min }, { key: "skills", title: "skill", best: Math.max }]
    .filter(({ key }) => levels.some((row) => row[key].some((/** @type {any} */ value) => value !== null)));
  if (!kinds.length) return h("p.quiet", "None of these runs has a loss by noise level yet.");
  const ends = runs.find((run) => run.levels)?.levels;
  return h("div.scroll", h("table.settings.levels",
    h("thead", h("tr", h("th", { scope: "col" }, "noise level"), kinds.map(({ title }) => runs.map((run, place) => h("th.number", { scope: "col" }, key(place), `${title} ${run.name}`))))),
    h("tbody", [...levels].reverse().map((row) => h("tr", h("th", { scope: "row" }, levelWords(row.level, ends)),
      kinds.map(({ key: name, best }) => {
        const known = row[name].filter((/** @type {any} */ value) => value !== null);
        const winner = known.length > 1 ? best(...known) : null;
        return row[name].map((/** @type {any} */ value) => h("td.number", value === winner && value !== null ? h("b", number(value)) : number(value)));
      }))))));
}

/** @param {Record<string, any[]>} settings @param {any[]} runs */
function settingTable(settings, runs) {
  const rows = Object.entries(settings);
  if (!rows.length) return h("p.quiet", "None.");
  return h("div.scroll", h("table.settings",
    h("thead", h("tr", h("th", { scope: "col" }, "setting"), runs.map((run, place) => h("th", { scope: "col" }, key(place), run.name)))),
    h("tbody", rows.map(([name, values]) => h("tr", h("th", { scope: "row" }, h("code", name)), values.map((value) => h("td", plainSetting(value))))))));
}
