/**
 * The head of a run: name, state, progress, time left, speed, and the verdict in one sentence.
 */

import { h, put, say } from "../element.js";
import { whileSeen } from "../live/attention.js";
import { count, duration, measured, number, stateWords } from "../words.js";

const BREATH = 2000; // ms
const SILENT = 30; // seconds without a heartbeat before a run that trains is called silent, whatever was told last

export class Head {
  /** @param {any} run @param {import("../source/server.js").Source} source */
  constructor(run, source) {
    this._source = source;
    this._run = run;
    this._facts = Object.fromEntries(["step", "left", "speed", "images", "distance"].map((name) => [name, h("dd", "–")]));
    this._timeWord = h("dt", "Time left");
    this._distanceWord = h("dt", "Distance");
    this._state = h("span.state");
    this._verdict = h("p.verdict", { role: "status" });
    this._bar = h("span");
    this._meter = h("div.progress", { role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 }, this._bar);
    this._notice = h("p.notice", { hidden: true });
    const fact = (/** @type {string} */ name, /** @type {string} */ words) => h("div", h("dt", words), this._facts[name]);
    this._optional = ["left", "speed", "images", "distance"].map((name) => this._facts[name]);
    this.element = h("header.run-head",
      h("div.run-title", h("h1", run.name), this._state),
      h("dl.facts", fact("step", "Step"), h("div", this._timeWord, this._facts.left), fact("speed", "Speed"), fact("images", "Images seen"), h("div", this._distanceWord, this._facts.distance)),
      this._meter, this._verdict, this._notice);
    this.update(run);
    this._end = source.kind === "server" ? whileSeen(() => this._breathe(), BREATH) : () => {};
  }

  /** @param {any} run what is known now; parts of it are enough */
  update(run) {
    this._run = { ...this._run, ...run };
    const { step, steps, left, speed, images_seen: images, batch_size: batch, verdict } = this._run;
    say(this._facts.step, steps ? `${count(step)} of ${count(steps)}` : count(step));
    const running = this._run.state === "live" || this._run.state === "watched";
    say(this._timeWord, running ? "Time left" : "Took");
    say(this._facts.left, duration(running ? left : this._run.seconds));
    say(this._facts.speed, speed ? `${number(Number(Number(speed).toPrecision(3)))} images/s` : "–");
    say(this._facts.images, count(batch ? step * batch : images));
    const { distance, distance_name: name } = this._run;
    say(this._distanceWord, name ?? "Distance");
    say(this._facts.distance, distance ? measured(distance[0], distance[1]) : "–");
    const over = ["finished", "crashed", "interrupted", "stopped", "refused"].includes(this._run.state);
    for (const each of this._optional) each.parentElement.hidden = over && each.textContent === "–"; // it will never come
    const share = steps ? Math.min(100, (100 * step) / steps) : 0;
    this._bar.style.width = `${share.toFixed(1)}%`;
    put(this._meter, "aria-valuenow", String(Math.round(share)));
    const title = `${running && steps ? `${Math.floor(share)} % · ` : ""}${this._run.name} · Safelight`;
    if (document.title !== title) document.title = title;
    say(this._verdict, verdict?.sentence ?? "");
    put(this._verdict, "class", `verdict ${verdict?.tone ?? ""}`);
    this._breathe();
  }

  /** The server cannot be heard, or can again. @param {boolean} lost */
  setLost(lost) {
    this._lost = lost;
    this._breathe();
  }

  /** What changes by itself, without any news: how long ago the last heartbeat was. */
  _breathe() {
    const { heartbeat } = this._run;
    const age = heartbeat ? Math.max(0, this._source.now() - heartbeat) : null;
    const silent = this._run.state === "live" && age !== null && age > SILENT && this._source.kind === "server";
    const state = silent ? "stale" : this._run.state;
    put(this._state, "class", `state ${state}`);
    say(this._state, stateWords({ ...this._run, state }, age === null ? null : Math.floor(age)));
    const words = this._lost ? "The dashboard cannot be reached. Trying again; what you see is what was known last." : noticeWords(state, age, this._run);
    this._notice.hidden = !words;
    put(this._notice, "class", `notice ${state === "crashed" ? "bad" : ""}`);
    say(this._notice, words ?? "");
  }

  close() {
    this._end();
  }
}

/** What a person should know of a run that does not go on by itself. @param {string} state @param {number | null} age @param {any} run */
function noticeWords(state, age, run) {
  if (run.problem) return run.problem;
  if (state === "stale") return `No heartbeat for ${duration(age)}. The process may be busy with a long evaluation, suspended, or gone. Its checkpoints are safe: safelight resume carries on from the newest.`;
  if (state === "crashed") return `The run ended without finishing${run.error ? `: ${run.error}` : ""}. Nothing that was saved is lost: safelight resume carries on from the newest checkpoint.`;
  if (state === "empty") return "Nothing has been recorded yet. This page fills by itself as soon as the first steps are done.";
  if (state === "interrupted") return "The run was interrupted and everything is saved. safelight resume carries on where it stopped.";
  return null;
}
