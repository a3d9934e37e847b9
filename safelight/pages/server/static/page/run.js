/**
 * The page of one run: head, verdict, charts beside samples, and tabs for the rest.
 */

import { View } from "../chart/view.js";
import { fill, h } from "../element.js";
import { Readings } from "../live/readings.js";
import { runAddress } from "../router.js";
import { Charts } from "./charts.js";
import { Data } from "./data.js";
import { causeWords, Findings } from "./findings.js";
import { Head } from "./head.js";
import { Reproduce } from "./reproduce.js";
import { ofKind, Samples } from "./samples.js";
import { Signals } from "./signals.js";
import { liveSignals } from "./specs.js";
import { Stages } from "./stages.js";
import { buildToolbar } from "./toolbar.js";

/** @type {Record<import("../router.js").Tab, string>} */
const TITLES = { charts: "Overview", samples: "Samples", findings: "Findings", signals: "All signals", data: "Data and settings", reproduce: "Reproduce" };

/** @param {HTMLElement} main @param {import("../source/server.js").Source} source @param {import("../router.js").Route} route @returns {import("../main.js").Page} */
export function openRun(main, source, route) {
  fill(main, h("p.quiet", { role: "status" }, "Loading the run…"));
  /** @type {RunPage | null} */
  let page = null;
  let open = true;
  let wanted = route;
  source.run(route.id).then(
    (run) => {
      if (open) page = new RunPage(main, source, run, wanted);
    },
    (error) => open && fill(main, h("div.empty", h("h1", "This run cannot be shown"), h("p", error.message), h("p", h("a", { href: "#/" }, "All runs")))),
  );
  return {
    show: (next) => {
      if (next.page !== "run" || next.id !== route.id) return false;
      wanted = next;
      page?.visit(next);
      return true;
    },
    close: () => {
      open = false;
      page?.close();
    },
  };
}

/** @param {any} run */
function isOver(run) {
  return !["live", "stale", "watched", "empty"].includes(run.state);
}

/** Why there are no samples. @param {any} run */
function noSamplesWords(run) {
  if (run.kind === "watched") return "Pass sampler to safelight.watch, and samples appear here.";
  return isOver(run) ? "No samples were drawn." : "The first samples appear with the first stage.";
}

class RunPage {
  /** @param {HTMLElement} main @param {import("../source/server.js").Source} source @param {any} run @param {import("../router.js").Route} route */
  constructor(main, source, run, route) {
    this._source = source;
    this.run = run;
    this.view = new View();
    this.view.batch = run.batch_size ?? 0;
    this.view.suggestSmooth(run.steps ?? run.cursor);
    this._setMarks();
    this._setExtent(run.cursor);
    if (route.steps) this.view.zoom(route.steps);
    this.readings = new Readings(source, run.id, this.view, (names) => {
      this.charts.change(names);
      this.signals?.change(names);
    });
    this.head = new Head(run, source);
    this.charts = new Charts(run, source, this.view, this.readings);
    this.samples = new Samples(run, source, this.view);
    this.findings = new Findings(run, source, (step, over) => this._visit(step, over));
    this.data = new Data(run, source);
    this.signals = new Signals(run, this.view, this.readings, () => this.charts.showPinned());
    this.reproduce = new Reproduce(run);
    this.toolbar = buildToolbar(this.view);
    this.preview = new Stages({ label: "samples", what: "Samples", empty: noSamplesWords(run) }, this.view, (picture) => source.picture(run.id, picture));
    this.strip = new Stages({ label: "the denoising", what: "Denoising strip", empty: "", controls: false, className: "strip" }, this.view, (picture) => source.picture(run.id, picture));
    this._build(main);
    this._setPreview();
    this.showTab(route.tab);
    this._listen();
    this._endZoom = this.view.subscribe((change) => change === "range" && this._showZoom());
    this._unfold = () => {
      for (const [tab, part] of Object.entries(/** @type {any} */ (this._parts))) part.hidden = tab === "signals"; // hundreds of charts
    };
    this._fold = () => this.showTab(/** @type {any} */ (this.tab));
    addEventListener("beforeprint", this._unfold, { capture: true }); // paper has no tabs
    addEventListener("afterprint", this._fold);
  }

  /** @param {HTMLElement} main */
  _build(main) {
    this._tabs = h("nav.tabs", { "aria-label": "Parts of this run" });
    this._alert = h("div.alert-place");
    /** @type {string} */
    this._alerted = "";
    const overview = this.overview = h("div.overview", this._alert,
      this.toolbar.element,
      h("div.hero", h("section.print", { "aria-label": "Samples" }, this.preview.element, this.strip.element), h("div.hero-charts", h("h2.hidden-text", "Charts"), this.charts.main, this.charts.grid)));
    this._parts = { charts: overview, samples: this.samples.element, findings: this.findings.element, signals: this.signals.element, data: this.data.element, reproduce: this.reproduce.element };
    for (const [tab, part] of Object.entries(this._parts)) part.dataset.part = tab;
    fill(main, this.head.element, this._tabs, Object.values(this._parts));
    this._drawAlert();
  }

  /** @param {import("../router.js").Route} route */
  visit(route) {
    const now = this.view.range;
    if (route.steps && (route.steps.first !== now?.first || route.steps.last !== now?.last)) this.view.zoom(route.steps);
    this.showTab(route.tab);
    this._showZoom(); // a link to another tab does not say it
  }

  /** The address has the steps that are seen, so that a link leads to them. */
  _showZoom() {
    const address = runAddress(this.run.id, /** @type {any} */ (this.tab), this.view.range);
    if (location.hash !== address && (this.view.range || location.hash.includes("?"))) history.replaceState(null, "", address);
  }

  /** @param {import("../router.js").Tab} tab */
  showTab(tab) {
    this.tab = tab;
    for (const [name, part] of Object.entries(/** @type {any} */ (this._parts))) part.hidden = name !== tab;
    this._drawTabs();
  }

  _drawTabs() {
    const open = this.run.findings.filter((/** @type {any} */ each) => each.over === null || each.over === undefined);
    const worst = open[0]?.severity ?? "";
    fill(this._tabs, Object.entries(TITLES).map(([tab, words]) =>
      h("a", { href: runAddress(this.run.id, /** @type {any} */ (tab)), "aria-current": tab === this.tab ? "page" : null }, words,
        tab === "findings" && this.run.findings.length > 0 && h("span.count", { class: `count ${worst}` }, this.run.findings.length))));
  }

  /** The worst that is still true, above the charts. */
  _drawAlert() {
    const open = this.run.findings.filter((/** @type {any} */ each) => (each.over === null || each.over === undefined) && each.severity !== "info");
    const [first] = open;
    const key = first ? `${first.code}/${open.length}` : "";
    if (this._alerted === key) return;
    this._alerted = key;
    fill(this._alert, first && h("div.alert", { class: `alert ${first.severity}` },
      h("div", h("b", causeWords(first.cause)), h("span.quiet", `To do: ${first.fix?.text ?? ""}`)),
      h("a.button", { href: runAddress(this.run.id, "findings") }, open.length > 1 ? `All ${open.length} findings` : "Evidence and fix")));
  }

  _setPreview() {
    const strips = ofKind(this.run.pictures, "denoising");
    this.preview.setPictures(ofKind(this.run.pictures, "samples"));
    this.strip.setPictures(strips);
    this.strip.element.hidden = !strips.length;
    const { overview } = /** @type {any} */ (this);
    overview?.classList.toggle("without-samples", !this.run.pictures.length && (this.run.kind === "watched" || isOver(this.run)));
  }

  /** @param {number} cursor */
  _setExtent(cursor) {
    this.view.setExtent(0, Math.max(cursor, 1), ["live", "watched"].includes(this.run.state));
  }

  _setMarks() {
    const findings = this.run.findings.filter((/** @type {any} */ each) => each.severity !== "info");
    this.view.marks = [
      ...findings.map((/** @type {any} */ each) => ({ step: each.step, over: each.over, tone: each.severity, words: each.cause })),
      ...(this.run.journal ?? []).map((/** @type {any} */ act) => ({ step: act.step, tone: "good", words: act.kind })),
    ];
  }

  /** @param {number} step @param {number | null} over */
  _visit(step, over) {
    this.view.visit(step, over);
    location.hash = runAddress(this.run.id, "charts", this.view.range);
    scrollTo({ top: 0 });
  }

  _listen() {
    const start = { after: this.run.cursor, version: this.run.version, signals: liveSignals() };
    this._cursor = this.run.cursor;
    this._stop = this._source.live(this.run.id, start, (event) => this._hear(event));
  }

  /** @param {import("../source/server.js").LiveEvent} event */
  _hear(event) {
    if (event.kind === "lost" || event.kind === "joined") this.head.setLost(event.kind === "lost");
    else if (event.kind === "delta") this._hearDelta(event.data);
    else this._refresh(event.kind === "reset");
  }

  /** @param {any} delta */
  _hearDelta(delta) {
    this.head.setLost(false);
    if (delta.status) this.head.update(delta.status);
    if (delta.reset || delta.after > this._cursor) this.readings.renew(); // another tab was further than this one
    this._cursor = Math.max(this._cursor, delta.cursor);
    if (delta.status) this.run.state = delta.status.state;
    this._setExtent(delta.cursor);
    this.readings.add(delta.series ?? {});
    this.charts.hear(delta.series ?? {});
  }

  /** Something else than readings changed: pictures, findings, the state. @param {boolean} anew the record was cut */
  async _refresh(anew) {
    let run;
    try {
      run = await this._source.run(this.run.id);
    } catch {
      return; // the next change asks again
    }
    this.run = run;
    this._setMarks();
    this._setExtent(run.cursor);
    this.head.update(run);
    this.samples.update(run);
    this._setPreview();
    this.findings.update(run);
    this.data.update(run);
    this.signals.update(run);
    this.reproduce.update(run);
    this.charts.update(run);
    this._drawTabs();
    this._drawAlert();
    if (anew) {
      this._cursor = run.cursor;
      this.readings.restart();
      this.charts.restart();
    }
  }

  close() {
    this._stop?.();
    this._endZoom?.();
    removeEventListener("beforeprint", this._unfold, { capture: true });
    removeEventListener("afterprint", this._fold);
    for (const part of [this.head, this.charts, this.samples, this.findings, this.signals, this.toolbar, this.preview, this.strip, this.readings]) part.close();
  }
}
