/**
 * The landing page: every run with its picture, its state and its verdict.
 */

import { fill, h, say } from "../element.js";
import { compareAddress, runAddress } from "../router.js";
import { count, duration, measured, moment, stateWords } from "../words.js";

const AGAIN = 5000; // ms

/** @param {HTMLElement} main @param {import("../source/server.js").Source} source @returns {import("../main.js").Page} */
export function openRuns(main, source) {
  document.title = "Runs · Safelight";
  const list = h("ul.runs");
  const trouble = h("p.notice.bad", { role: "alert", hidden: true });
  const compare = h("a.button", { hidden: true }, "Compare");
  const intro = h("p.quiet", "Loading the runs…");
  fill(main, h("div.page-head", h("div", h("h1", "Runs"), intro), compare), trouble, list);
  /** @type {Set<string>} */
  const chosen = new Set();
  let open = true;
  let timer = 0;

  const showChosen = () => {
    compare.hidden = chosen.size < 2;
    say(compare, `Compare ${chosen.size} runs`);
    compare.setAttribute("href", compareAddress([...chosen]));
  };
  const choose = (/** @type {string} */ id, /** @type {boolean} */ yes) => {
    if (yes) chosen.add(id);
    else chosen.delete(id);
    showChosen();
  };
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden || !open) return;
    try {
      const { runs } = await source.runs();
      if (!open) return;
      runs.sort((/** @type {any} */ one, /** @type {any} */ two) => (two.created ?? 0) - (one.created ?? 0));
      trouble.hidden = true;
      say(intro, runs.length > 1 ? `${runs.length} runs, the newest first.` : runs.length ? "One run." : "None yet.");
      if (runs.length) drawRuns(list, runs, source, chosen, choose);
      else fill(list, emptyWords());
    } catch (error) {
      trouble.hidden = false;
      say(trouble, /** @type {Error} */ (error).message);
    }
    timer = setTimeout(look, AGAIN);
  };
  document.addEventListener("visibilitychange", look);
  look();
  return {
    close: () => {
      open = false;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    },
  };
}

function emptyWords() {
  return h("li.empty", h("h1", "No run yet"), h("p", "Start one, and it appears here by itself: ", h("code", "safelight train"), "."));
}

/** Keeps the rows that are there, so that focus and scrolling stay. @param {HTMLElement} list @param {any[]} runs @param {import("../source/server.js").Source} source @param {Set<string>} chosen @param {(id: string, yes: boolean) => void} choose */
function drawRuns(list, runs, source, chosen, choose) {
  const there = new Map([...list.children].map((row) => [/** @type {HTMLElement} */ (row).dataset.id, row]));
  const rows = runs.map((run) => {
    const row = there.get(run.id) ?? buildRow(run, chosen.has(run.id), choose);
    updateRow(/** @type {HTMLElement} */ (row), run, source);
    return row;
  });
  if (rows.length !== list.children.length || rows.some((row, place) => row !== list.children[place])) fill(list, rows);
}

/** @param {any} run @param {boolean} checked @param {(id: string, yes: boolean) => void} choose */
function buildRow(run, checked, choose) {
  const box = h("input", { type: "checkbox", checked, "aria-label": `Choose ${run.name} for comparing`, on: { change: () => choose(run.id, box.checked) } });
  return h("li.run-row", { "data-id": run.id },
    h("label.pick", box),
    h("a.run-link", { href: runAddress(run.id) },
      h("span.thumb"),
      h("span.run-main", h("span.run-name", run.name), h("span.verdict-line")),
      h("span.run-side", h("span.state"), h("span.meter", h("span")), h("span.run-steps"), h("span.faint.run-when"))));
}

/** @param {HTMLElement} row @param {any} run @param {import("../source/server.js").Source} source */
function updateRow(row, run, source) {
  const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (row.querySelector(name));
  const state = part(".state");
  state.className = `state ${run.state}`;
  say(state, stateWords(run, run.age ?? null));
  const verdict = part(".verdict-line");
  verdict.className = `verdict-line ${run.verdict?.tone ?? ""}`;
  say(verdict, run.verdict?.sentence ?? "");
  say(part(".run-steps"), stepsWords(run));
  say(part(".run-when"), [run.created ? moment(run.created) : "", run.seconds ? duration(run.seconds) : ""].filter(Boolean).join(" · "));
  part(".meter span").style.width = `${run.steps ? Math.min(100, (100 * run.step) / run.steps) : 0}%`;
  const thumb = part(".thumb");
  const address = run.thumbnail ? source.picture(run.id, { id: run.thumbnail, kind: "samples", step: 0, width: 0, height: 0, url: `/api/runs/${encodeURIComponent(run.id)}/pictures/${encodeURIComponent(run.thumbnail)}` }) : "";
  if (thumb.dataset.address !== address) {
    thumb.dataset.address = address;
    fill(thumb, address && h("img", { src: address, alt: "", loading: "lazy", decoding: "async" }));
  }
}

/** @param {any} run */
function stepsWords(run) {
  const steps = run.steps ? `step ${count(run.step)} of ${count(run.steps)}` : `step ${count(run.step)}`;
  return run.distance ? `${steps} · ${run.distance_name ?? "distance"} ${measured(run.distance[0], run.distance[1])}` : steps;
}
