/**
 * Findings as cards: what, since when, the evidence as a small chart, what was ruled out, the fix to copy, what heal did.
 */

import { LineChart } from "../chart/line.js";
import { View } from "../chart/view.js";
import { fill, h, icon, say } from "../element.js";
import { Readings } from "../live/readings.js";
import { capital, count, moment, number, plain } from "../words.js";

const CHARTS = 2; // pieces of evidence of a card that get one
const SAMPLES = 8; // of a batch that are named
/** @type {Record<string, string>} */
const FAMILIES = { lr: "Learning rate", ema: "EMA", mode: "Train and eval mode", forward: "Noising", distributed: "Several processes", generalisation: "Generalisation and variety" };
const REFUSED = "refused batches"; // kind of the pictures of refused updates

export class Findings {
  /** @param {any} run @param {import("../source/server.js").Source} source @param {(step: number, over: number | null) => void} visit moves the charts there */
  constructor(run, source, visit) {
    this._source = source;
    this._visit = visit;
    this._cards = h("div.cards");
    this._journal = h("section.journal");
    this._checked = h("div.checked");
    this.element = h("div.findings-page", this._cards, this._journal, this._checked);
    /** @type {{close: () => void}[]} */
    this._open = [];
    this._shown = "";
    this.update(run);
  }

  /** @param {any} run */
  update(run) {
    const findings = run.findings; // the worst first, as the server sorts them
    const shown = JSON.stringify([findings, run.journal, run.checked, run.cursor > 0, run.pictures?.filter((/** @type {any} */ each) => each.kind === REFUSED).length]);
    if (shown === this._shown) return; // the charts in the cards stay
    this._shown = shown;
    this._closeCards();
    if (findings.length) fill(this._cards, findings.map((/** @type {any} */ finding) => this._card(finding, run)));
    else fill(this._cards, h("div.empty", h("h1", "Nothing found"), h("p", emptyWords(run))));
    fill(this._checked, checkedSection(run.checked));
    fill(this._journal, run.journal?.length ? [h("h2", "What was done to this run"), actList(run.journal)] : null);
  }

  /** @param {any} finding @param {any} run */
  _card(finding, run) {
    const words = h("button.button", { type: "button", on: { click: () => this._visit(finding.step, finding.over ?? null) } }, "Show in the charts");
    return h("article.card", { class: `card ${finding.severity}`, "aria-label": finding.cause },
      h("header", h("span.severity", { class: `severity ${finding.severity}` }, capital(finding.severity)), h("h2", finding.title ?? causeWords(finding.cause)), h("code.faint", finding.code)),
      h("p.summary", finding.summary),
      h("p.since", sinceWords(finding), words),
      this._evidence(finding, run),
      this._batch(finding.batch, run),
      finding.ruled_out?.length > 0 && h("section", h("h3.eyebrow", "Ruled out"), h("ul.plain-list", finding.ruled_out.map((/** @type {any} */ each) => h("li", plain(each))))),
      fixSection(finding),
      finding.healed?.length > 0 && h("section", h("h3.eyebrow", "What heal did"), actList(finding.healed)));
  }

  /** @param {any} finding @param {any} run */
  _evidence(finding, run) {
    if (!finding.evidence?.length) return null;
    const known = new Map(run.signals.map((/** @type {any} */ signal) => [signal.name, signal]));
    const drawn = finding.evidence.filter((/** @type {any} */ each) => known.has(each.signal) && known.get(each.signal).first < known.get(each.signal).last).slice(0, CHARTS);
    return h("section", h("h3.eyebrow", "Evidence"),
      h("div.scroll", h("table.evidence",
        h("thead", h("tr", ["signal", "here", "healthy run"].map((word) => h("th", { scope: "col" }, word)))),
        h("tbody", finding.evidence.map((/** @type {any} */ each) => h("tr",
          h("td", h("code", each.signal), each.steps && h("span.faint", each.steps[0] === each.steps[1] ? ` step ${count(each.steps[0])}` : ` steps ${count(each.steps[0])}–${count(each.steps[1])}`)),
          h("td", h("b", typeof each.value === "number" ? number(each.value) : plain(each.value))),
          h("td.quiet", each.usual ?? "–")))))),
      drawn.length > 0 && h("div.evidence-charts", drawn.map((/** @type {any} */ each) => this._chart(each.signal, finding, run))));
  }

  /** What a step was made of that went wrong. @param {any} batch @param {any} run */
  _batch(batch, run) {
    if (!batch) return null;
    const pairs = batch.samples.slice(0, SAMPLES).map((/** @type {any} */ sample, /** @type {number} */ place) => `${sample} (t ${number(batch.timesteps[place])})`);
    const rows = ["images", "prediction"].filter((name) => Object.keys(batch[name]).length);
    const picture = run.pictures?.find((/** @type {any} */ each) => each.kind === REFUSED && each.step === batch.step + 1);
    const address = picture && this._source.picture(run.id, picture);
    return h("section.batch", h("h3.eyebrow", `The batch of step ${count(batch.step)}`),
      h("p", `Images ${pairs.join(", ")}${batch.samples.length > SAMPLES ? " …" : ""}`),
      rows.length > 0 && h("div.scroll", h("table.evidence",
        h("thead", h("tr", ["of", "lowest", "highest", "mean", "deviation", "not finite"].map((word) => h("th", { scope: "col" }, word)))),
        h("tbody", rows.map((name) => h("tr", h("td", name),
          ["min", "max", "mean", "std"].map((key) => h("td", h("b", batch[name][key] === null ? "–" : number(batch[name][key])))),
          h("td.quiet", `${number(100 * (batch[name].nonfinite ?? 0))} %`)))))),
      address && h("img.batch-picture", { src: address, alt: `Image, noised and prediction of the batch of step ${batch.step}`, loading: "lazy", decoding: "async" }));
  }

  /** @param {string} signal @param {any} finding @param {any} run */
  _chart(signal, finding, run) {
    const view = new View();
    view.axis = "step";
    view.suggestSmooth(run.cursor);
    view.setExtent(0, Math.max(1, run.cursor));
    view.marks = [{ step: finding.step, over: finding.over, tone: finding.severity, words: finding.cause }];
    const readings = new Readings(this._source, run.id, view, () => chart.change());
    const chart = new LineChart({ name: `evidence.${signal}`, title: signal, lines: [{ signal, label: signal, colour: 6, band: true }], className: "mini" }, view, readings);
    if (this._source.kind === "report") chart.preload();
    this._open.push(chart, readings);
    return chart.figure;
  }

  _closeCards() {
    for (const each of this._open) each.close();
    this._open = [];
  }

  close() {
    this._closeCards();
  }
}

/** precision.scale-halving -> Precision: scale halving. @param {string} cause */
export function causeWords(cause) {
  const [subsystem, ...rest] = cause.split(".");
  return `${capital(subsystem)}: ${rest.join(".").replaceAll("-", " ")}`;
}

/** @param {any} finding */
function sinceWords(finding) {
  const over = finding.over === null || finding.over === undefined ? "" : `, over since step ${count(finding.over)}`;
  const { confidence } = finding;
  const sure = confidence === null || confidence === undefined ? "" : confidence >= 1 ? " · an exact identity" : ` · ${Math.floor(confidence * 1000) / 10} % sure`;
  return h("span", `Since step ${count(finding.step)}${over}${sure}`);
}

/** @param {any} run */
function emptyWords(run) {
  if (run.state === "empty" || run.cursor < 0) return "Nothing has been measured yet. The rules run as soon as there are readings.";
  const { checked } = run;
  return checked ? `${count(checked.looked)} of ${count(checked.rules)} rules had what they need, and found nothing. What each family checked is listed below.` : "No rule found anything.";
}

/** What was checked, by family. @param {any} checked */
function checkedSection(checked) {
  if (!checked) return null;
  const names = (/** @type {string} */ title, /** @type {string[]} */ titles, /** @type {string} */ tone) => titles.length > 0 && [
    h("h3.eyebrow", `${title} (${titles.length})`), h("ul", { class: `check-list ${tone}` }, titles.map((each) => h("li", each)))];
  return h("section", h("h2", "What was checked"),
    h("p.quiet", `${count(checked.looked)} of ${count(checked.rules)} rules had the readings they need.${checked.advice ? ` ${checked.advice.replaceAll("`", "")}` : ""}`),
    h("div.families", checked.families.map((/** @type {any} */ family) => h("details.family",
      h("summary", h("b", FAMILIES[family.name] ?? capital(family.name)), h("span", { class: family.found.length ? "bad" : family.passed.length ? "good" : "faint" }, familyWords(family))),
      names("Found", family.found, "bad"), names("Passed", family.passed, "good"), names("Could not be checked", family.missing, "faint")))));
}

/** @param {any} family */
function familyWords({ found, passed, missing }) {
  return [found.length && `${found.length} found`, passed.length && `${passed.length} passed`, missing.length && `${missing.length} not checked`].filter(Boolean).join(", ");
}

/** @param {any} finding */
function fixSection(finding) {
  const settings = Object.entries(finding.fix?.set ?? {}).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return h("section.fix", h("h3.eyebrow", "What to do"), h("p", finding.fix?.text ?? ""),
    finding.command && copyable(finding.command, "command"),
    settings.length > 0 && copyable(settings.join("\n"), "settings"));
}

/** @param {string} text @param {string} what */
export function copyable(text, what) {
  const told = h("span", "Copy");
  const button = h("button.button.plain", { type: "button", "aria-label": `Copy the ${what}`, on: { click: () => copy(text, told) } }, icon("copy"), told);
  return h("div.copyable", h("pre", { tabindex: 0 }, h("code", text)), button);
}

/** @param {string} text @param {HTMLElement} told */
async function copy(text, told) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { readonly: true, class: "hidden-text" });
    area.value = text; // pages from a disk and over plain http have no clipboard of their own
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say(told, "Copied");
  setTimeout(() => say(told, "Copy"), 1600);
}

/** @param {any[]} acts */
function actList(acts) {
  return h("ul.plain-list", acts.map((act) => h("li",
    h("b", `Step ${count(act.step)}: `), act.reason ?? plain(act.facts), h("span.faint", ` ${act.kind ?? act.act ?? ""}${act.time ? `, ${moment(act.time)}` : ""}`),
    act.undone !== null && act.undone !== undefined && h("span.quiet", ` Undone from step ${count(act.undone)} on.`))));
}
