/**
 * The data of a run: facts, contact sheet, files that were left out; and the settings it was trained with.
 */

import { fill, h } from "../element.js";
import { bytes, count, number, plain } from "../words.js";
import { ofKind } from "./samples.js";

const TOLD = 200; // files left out that are listed

/** @type {[string, string, (value: any) => string][]} */
const FACTS = [
  ["source", "Source", plain], ["images", "Images", count], ["side", "Side", (value) => `${value} px`], ["channels", "Channels", plain],
  ["file_bytes", "Size of the files", bytes], ["formats", "Formats", plain], ["widths", "Widths", spread], ["heights", "Heights", spread],
  ["mean", "Mean level", plain], ["std", "Spread of levels", plain], ["low", "Darkest level", plain], ["high", "Brightest level", plain],
  ["grey", "Grey", count], ["transparent", "Transparent", count], ["turned", "Turned", count], ["enlarged", "Enlarged", count], ["blank", "Blank", count],
  ["duplicates", "Duplicates", count], ["near", "Pairs that look alike", count], ["in_two_classes", "In two classes", plain],
  ["lost", "Lost by cropping", (value) => `${number(100 * value)} %`], ["much_lost", "Losing more than a quarter", count],
  ["held_out", "Held out", plain], ["straddling", "Alike across held out", plain], ["fingerprint", "Fingerprint", (value) => `${String(value).slice(0, 16)}…`],
];

export class Data {
  /** @param {any} run @param {import("../source/server.js").Source} source */
  constructor(run, source) {
    this._source = source;
    this.element = h("div.data-page");
    this._shown = "";
    this.update(run);
  }

  /** @param {any} run */
  update(run) {
    const sheet = ofKind(run.pictures, "contact_sheet").at(-1);
    const shown = JSON.stringify([run.data, run.config, sheet?.id]);
    if (shown === this._shown) return;
    this._shown = shown;
    fill(this.element, run.data ? [factSection(run.data), classSection(run.data)] : h("p.quiet", "Nothing is known of the images: a watched loop tells of them only where it is given them."),
      sheet && h("section", h("h2", "Contact sheet"), h("img.sheet", { src: this._source.picture(run.id, sheet), alt: "A sheet of training images", width: sheet.width, height: sheet.height, loading: "lazy" })),
      run.data && rejectedSection(run.data.rejected, run.data.rejected_count), run.config && settingSection(run.config), run.versions && versionSection(run.versions));
  }

  close() {}
}

/** @param {any} value smallest, median, largest */
function spread(value) {
  return Array.isArray(value) && value.length === 3 ? `${value[0]} to ${value[2]} px, median ${value[1]}` : plain(value);
}

/** @param {any} data */
function factSection(data) {
  const known = FACTS.filter(([key]) => data[key] !== undefined && data[key] !== null && !isEmpty(data[key]) && !(key === "file_bytes" && !data[key]));
  return h("section", h("h2", "Images"), h("dl.fact-list", known.map(([key, words, tell]) => h("div", h("dt", words), h("dd", tell(data[key]))))));
}

/** @param {any} value */
function isEmpty(value) {
  return typeof value === "object" && !Object.keys(value).length;
}

/** @param {any} data */
function classSection(data) {
  const classes = Object.entries(data.classes ?? {});
  if (!classes.length) return null;
  const most = Math.max(...classes.map(([, images]) => Number(images)));
  return h("section", h("h2", `Classes (${classes.length})`), h("ul.bars", classes.slice(0, 100).map(([name, images]) =>
    h("li", h("span.bar-name", name), h("span.bar", h("span", { style: { width: `${(100 * Number(images)) / most}%` } })), h("span.bar-count", count(Number(images)))))));
}

/** @param {any} rejected @param {number} [all] how many there are, listed or not */
function rejectedSection(rejected, all) {
  const files = Array.isArray(rejected) ? rejected : [];
  const total = all ?? files.length;
  if (!files.length) return h("section", h("h2", "Left out"), h("p.quiet", "No file was left out: every one could be read."));
  return h("section", h("h2", `Left out (${count(total)})`), h("div.scroll", h("table",
    h("thead", h("tr", h("th", { scope: "col" }, "file"), h("th", { scope: "col" }, "why"))),
    h("tbody", files.slice(0, TOLD).map((/** @type {any} */ file) => {
      const [name, reason] = Array.isArray(file) ? file : [file.name, file.reason];
      return h("tr", h("td", name), h("td", reason));
    })))), total > TOLD && h("p.quiet", `… and ${count(total - TOLD)} more, all in data.json.`));
}

/** @param {Record<string, any>} config */
function settingSection(config) {
  return h("section", h("h2", "Settings"), h("div.columns", Object.entries(config).map(([key, value]) => h("div.setting", h("code", key), h("span", plainSetting(value))))));
}

/** As it stands in the file. @param {any} value */
export function plainSetting(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** @param {Record<string, any>} versions */
function versionSection(versions) {
  return h("section", h("h2", "Made with"), h("dl.fact-list", Object.entries(versions).map(([key, value]) => h("div", h("dt", key), h("dd", plain(value))))));
}
