/**
 * What the pages know, asked of the dashboard's server.
 */

import { openLive } from "./stream.js";

/**
 * @typedef {{signals: string[], first?: number, last?: number, pixels?: number, smooth?: number}} SeriesQuery
 * @typedef {{series: Record<string, import("../live/readings.js").Series>, first: number, last: number, clock?: {step: number[], time: number[]}}} SeriesAnswer
 * @typedef {{id: string, kind: string, step: number, width: number, height: number, url: string}} Picture
 * @typedef {{kind: "delta" | "changed" | "reset" | "lost" | "joined", data?: any}} LiveEvent
 *
 * All that pages ever ask for. The report answers the same questions from inside its file.
 * @typedef {object} Source
 * @property {"server" | "report"} kind
 * @property {() => Promise<any>} runs
 * @property {(id: string) => Promise<any>} run
 * @property {(id: string, query: SeriesQuery) => Promise<SeriesAnswer>} series
 * @property {(id: string, query: {of?: "loss" | "skill", first?: number, last?: number, pixels?: number}) => Promise<any>} heatmap
 * @property {(ids: string[]) => Promise<any>} compare
 * @property {(id: string, picture: Picture) => string} picture an address for an img
 * @property {(id: string, start: {after: number, version: string, signals: string[]}, hear: (event: LiveEvent) => void) => () => void} live
 * @property {() => number} now seconds since 1970 on the machine that trains
 */

const TOGETHER = 40; // signals of one question

/** @returns {Source} */
export function serverSource() {
  let behind = 0; // seconds that this machine's clock is behind the server's

  /** @param {string} path @param {Record<string, any>} [query] */
  async function ask(path, query = {}) {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== null) parameters.set(name, Array.isArray(value) ? value.join(",") : String(value));
    }
    const tail = parameters.size ? `?${parameters}` : "";
    let answer;
    try {
      answer = await fetch(`/api/${path}${tail}`, { headers: { Accept: "application/json" } });
    } catch {
      throw new Error("The dashboard does not answer. Is `safelight dashboard` still running?");
    }
    const date = Date.parse(answer.headers.get("Date") ?? "");
    if (Number.isFinite(date) && Math.abs(date - Date.now()) > 2000) behind = (date - Date.now()) / 1000;
    const found = await answer.json().catch(() => null);
    if (!answer.ok || found === null) throw new Error(found?.error ?? `The dashboard answered ${answer.status}.`);
    return found;
  }

  /** Many signals make a long address: they are asked for in parts. @param {string} id @param {SeriesQuery} query @returns {Promise<SeriesAnswer>} */
  async function askSeries(id, query) {
    const parts = [];
    for (let i = 0; i < query.signals.length; i += TOGETHER) parts.push(query.signals.slice(i, i + TOGETHER));
    const answers = await Promise.all(parts.map((signals) => ask(`runs/${encodeURIComponent(id)}/series`, { ...query, signals })));
    return { ...answers[0], series: Object.assign({}, ...answers.map((answer) => answer.series)) };
  }

  return {
    kind: "server",
    runs: () => ask("runs"),
    run: (id) => ask(`runs/${encodeURIComponent(id)}`),
    series: askSeries,
    heatmap: (id, query) => ask(`runs/${encodeURIComponent(id)}/heatmap`, query),
    compare: (ids) => ask("compare", { runs: ids }),
    picture: (_, picture) => picture.url,
    live: (id, start, hear) => openLive(id, start, hear, ask),
    now: () => Date.now() / 1000 + behind,
  };
}
