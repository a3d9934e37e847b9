/**
 * How a run is made again: the command, what differs from the preset, the state of the code, versions, all settings.
 */

import { fill, h } from "../element.js";
import { count, plain } from "../words.js";
import { plainSetting } from "./data.js";
import { copyable } from "./findings.js";

const SHORT = 12; // digits of a commit that are shown

export class Reproduce {
  /** @param {any} run */
  constructor(run) {
    this.element = h("div.reproduce-page");
    this._shown = "";
    this.update(run);
  }

  /** @param {any} run */
  update(run) {
    const facts = run.reproduce ?? {};
    const shown = JSON.stringify([facts, run.state]);
    if (shown === this._shown) return;
    this._shown = shown;
    fill(this.element, commandSection(facts, run), run.kind !== "watched" && differenceSection(facts),
      codeSection(facts), facts.yaml && h("section", h("h2", "All settings (config.yaml)"), copyable(facts.yaml, "settings")));
  }

  close() {}
}

/** @param {any} facts @param {any} run */
function commandSection(facts, run) {
  const commands = facts.commands ?? [];
  const [first, ...later] = commands;
  const otherwise = run.kind === "watched" ? "It was started in a notebook or a console, or by an earlier version, which did not write the command down."
    : "The command was not written down: the run was started from Python, or by an earlier version. The settings below give the same run.";
  const again = run.kind !== "watched" && facts.again;
  return h("section", h("h2", "Command"),
    first ? copyable(first, "command") : h("p.quiet", otherwise),
    later.length > 0 && [h("h3.eyebrow", "Resumed with other settings by"), later.map((/** @type {string} */ each) => copyable(each, "command"))],
    !first && again && copyable(again, "command"),
    run.kind !== "watched" && h("p.quiet", `Seed ${plain(facts.seed)}. On a CPU the same command, images, versions and number of threads give the same bytes.`));
}

/** @param {any} facts */
function differenceSection(facts) {
  const rows = Object.entries(facts.differs ?? {});
  if (!facts.preset) return null;
  return h("section", h("h2", `Different from the preset ${facts.preset}`),
    rows.length ? h("div.scroll", h("table.settings",
      h("thead", h("tr", ["setting", `preset ${facts.preset}`, "this run"].map((word) => h("th", { scope: "col" }, word)))),
      h("tbody", rows.map(([name, [there, here]]) => h("tr", h("th", { scope: "row" }, h("code", name)), h("td.quiet", plainSetting(there)), h("td", h("b", plainSetting(here)))))))) :
      h("p.quiet", "Nothing: every setting is that of the preset."));
}

/** @param {any} facts */
function codeSection(facts) {
  const { script, code, versions, fingerprint } = facts;
  const rows = [
    script && ["Script", script.name],
    script && ["Commit of the script", commitWords(script)],
    code && ["Commit of Safelight", commitWords(code)],
    fingerprint && ["Fingerprint of the images", `${fingerprint.slice(0, SHORT)}…`],
    ...Object.entries(versions ?? {}).map(([name, version]) => [name, typeof version === "number" ? count(version) : plain(version)]),
  ].filter(Boolean);
  return h("section", h("h2", "Code and versions"),
    h("dl.fact-list", rows.map((/** @type {any} */ [name, words]) => h("div", h("dt", name), h("dd", words)))));
}

/** @param {{commit: string | null, changed: boolean | null}} found */
function commitWords({ commit, changed }) {
  if (!commit) return "not in a git repository";
  return `${commit.slice(0, SHORT)}${changed ? ", with changes that are not committed" : changed === false ? "" : " (changes not known)"}`;
}
