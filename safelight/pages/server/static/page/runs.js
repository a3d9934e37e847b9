/**
 * The landing page: every run with its picture, its state and its verdict.
 */

import { choice, fill, h, say } from "../element.js";
import { recall, remember } from "../memory.js";
import { compareAddress, runAddress } from "../router.js";
import { count, duration, measured, moment, number, stateWords } from "../words.js";

const AGAIN = 5000; // ms
const SOON = 300; // ms, while records of runs are still being read
const FEW = 3; // fewer runs need no search

/** What is not known comes last. @param {number | null | undefined} value @param {number} sign */
const ordered = (value, sign) => (value === null || value === undefined ? Infinity : sign * value);

/** The smallest first. @type {Record<string, (run: any) => any>} */
const ORDERS = {
  newest: (run) => ordered(run.created, -1),
  name: (run) => run.name,
  loss: (run) => ordered(run.loss, 1),
  skill: (run) => ordered(run.skill, -1),
  distance: (run) => ordered(run.distance?.[0], 1),
};

/** @param {HTMLElement} main @param {import("../source/server.js").Source} source @returns {import("../main.js").Page} */
export function openRuns(main, source) {
  document.title = "Runs · Safelight";
  const list = h("ul.runs");
  const trouble = h("p.notice.bad", { role: "alert", hidden: true });
  const compare = h("a.button", { hidden: true }, "Compare");
  const intro = h("p.quiet", "Loading the runs…");
  const find = h("input", { type: "search", placeholder: "Name, state, verdict or finding", "aria-label": "Find runs", on: { input: () => draw() } });
  let order = recall("runs.order", "newest");
  if (!(order in ORDERS)) order = "newest";
  const sort = choice("Order", { newest: "newest", name: "name", loss: "loss", skill: "skill", distance: "distance" }, order, (chosen) => {
    order = chosen;
    remember("runs.order", chosen);
    draw();
  });
  const tools = h("div.run-tools", { hidden: true }, find, h("div.tool", h("span.eyebrow", "Order"), sort));
  fill(main, h("div.page-head", h("div", h("h1", "Runs"), intro), compare), tools, trouble, list);
  /** @type {any[]} */
  let runs = [];
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
  const draw = () => {
    const shown = chooseRuns(runs, find.value, ORDERS[order]);
    const words = shown.length < runs.length ? `${count(shown.length)} of ${count(runs.length)} runs.` : runs.length === 1 ? "One run." : `${count(runs.length)} runs.`;
    say(intro, runs.length ? words : "None yet.");
    tools.hidden = runs.length < FEW;
    if (shown.length) drawRuns(list, shown, source, chosen, choose);
    else fill(list, runs.length ? h("li.empty", h("p", "No run has these words.")) : emptyWords());
  };
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden || !open) return;
    try {
      const answer = await source.runs();
      if (!open) return;
      runs = answer.runs;
      trouble.hidden = true;
      draw();
    } catch (error) {
      trouble.hidden = false;
      say(trouble, /** @type {Error} */ (error).message);
    }
    timer = setTimeout(look, runs.some((run) => run.pending) ? SOON : AGAIN);
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

/** Those with every word of the search, in order. @param {any[]} runs @param {string} search @param {(run: any) => any} key */
function chooseRuns(runs, search, key) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (/** @type {any} */ run) => [run.name, stateWords(run, run.age ?? null), run.verdict?.sentence, run.finding?.code, run.finding?.cause].join(" ").toLowerCase();
  const chosen = words.length ? runs.filter((run) => words.every((word) => text(run).includes(word))) : [...runs];
  return chosen.sort((one, two) => (key(one) < key(two) ? -1 : key(one) > key(two) ? 1 : 0));
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
  const known = (/** @type {any} */ value) => value !== null && value !== undefined;
  return [
    run.steps ? `step ${count(run.step)} of ${count(run.steps)}` : `step ${count(run.step)}`,
    known(run.loss) && `loss ${number(run.loss)}`,
    known(run.skill) && `skill ${run.skill.toFixed(2)}`,
    run.distance && `${run.distance_name ?? "distance"} ${measured(run.distance[0], run.distance[1])}`,
  ].filter(Boolean).join(" · ");
}
