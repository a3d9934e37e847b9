/**
 * News of a run. All tabs of a browser share one stream: a browser keeps at most six connections to a server.
 *
 * The tab that holds the lock reads the stream and tells the others. A hidden tab lets go of it and hears nothing; when
 * it is seen again, it asks once for what it missed. Where no connection is left, or no stream comes through, the server
 * is asked every two seconds.
 */

import { paced } from "../live/pace.js";

const STREAMS = 4; // of different runs; the other connections are for questions and pictures
const POLL = 2000;
const RETRY = 3000;

/**
 * @param {string} id @param {{after: number, version: string, signals: string[]}} start
 * @param {(event: import("./server.js").LiveEvent) => void} hear
 * @param {(path: string, query: Record<string, any>) => Promise<any>} ask
 * @returns {() => void} ends it
 */
export function openLive(id, start, hear, ask) {
  const place = { after: start.after, version: start.version };
  const news = paced(hear);
  /** @type {BroadcastChannel | null} */
  let channel = null;
  /** @type {AbortController | null} */
  let leading = null;

  /** @param {import("./server.js").LiveEvent} event */
  const take = (event) => {
    if (event.kind === "delta") place.after = Math.max(place.after, event.data.cursor);
    if (event.kind === "reset") place.after = -1;
    if (event.kind === "changed") place.version = event.data.version;
    news.hear(event);
  };
  /** @param {import("./server.js").LiveEvent} event */
  const spread = (event) => {
    if (event.kind === "delta") event = { ...event, data: { ...event.data, after: place.after } };
    channel?.postMessage(event);
    take(event);
  };
  const query = () => ({ run: id, after: place.after, version: place.version, signals: start.signals });

  const lead = () => {
    const control = new AbortController();
    leading = control;
    channel = "BroadcastChannel" in globalThis ? new BroadcastChannel(`safelight.${id}`) : null;
    if (channel) channel.onmessage = (message) => take(message.data);
    const work = () => read(query, spread, ask, control.signal);
    const done = navigator.locks ? navigator.locks.request(`safelight.run.${id}`, { signal: control.signal }, work) : work();
    done.catch(() => {}); // the wait for the lock was ended
  };
  const leave = () => {
    leading?.abort();
    leading = null;
    channel?.close();
    channel = null;
  };
  const turn = () => {
    leave();
    if (document.hidden) return;
    lead();
    ask("delta", query()).then((found) => leading && tell(found, take), () => {}); // another tab may lead: it tells only what is new
  };

  document.addEventListener("visibilitychange", turn);
  if (!document.hidden) lead();
  return () => {
    document.removeEventListener("visibilitychange", turn);
    leave();
    news.close();
  };
}

/** @param {Record<string, any>} found an answer with all that is new @param {(event: any) => void} take */
function tell(found, take) {
  for (const kind of ["reset", "changed", "delta"]) if (found[kind]) take({ kind, data: found[kind] });
}

/** @typedef {() => {run: string, after: number, version: string, signals: string[]}} Query */

/** @param {Query} query @param {(event: any) => void} spread @param {(path: string, query: any) => Promise<any>} ask @param {AbortSignal} signal */
async function read(query, spread, ask, signal) {
  const work = () => stream(query, spread, signal);
  if (!navigator.locks) return (await work()) || poll(query, spread, ask, signal);
  for (let number = 0; number < STREAMS; number += 1) {
    const taken = await navigator.locks.request(`safelight.stream.${number}`, { ifAvailable: true }, async (lock) => lock !== null && ((await work()) || "none"));
    if (taken === true) return; // it was read until the end
    if (taken === "none") break; // no stream comes through
  }
  await poll(query, spread, ask, signal);
}

/** @param {Query} query @param {(event: any) => void} spread @param {AbortSignal} signal @returns {Promise<boolean>} false: no stream comes through */
function stream(query, spread, signal) {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(true);
    if (!("EventSource" in globalThis)) return resolve(false);
    const { run, after, version, signals } = query();
    const parameters = new URLSearchParams({ run, after: String(after), version, signals: signals.join(",") });
    const events = new EventSource(`/api/live?${parameters}`);
    let lost = false;
    for (const kind of ["delta", "changed", "reset"]) {
      events.addEventListener(kind, (event) => spread({ kind, data: JSON.parse(/** @type {MessageEvent} */ (event).data || "{}") }));
    }
    events.addEventListener("open", () => {
      if (lost) spread({ kind: "joined" });
      lost = false;
    });
    events.addEventListener("error", () => {
      if (!lost) spread({ kind: "lost" });
      lost = true;
      if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      resolve(false);
    });
    signal.addEventListener("abort", () => {
      events.close();
      resolve(true);
    });
  });
}

/** @param {Query} query @param {(event: any) => void} spread @param {(path: string, query: any) => Promise<any>} ask @param {AbortSignal} signal */
async function poll(query, spread, ask, signal) {
  let lost = false;
  while (!signal.aborted) {
    try {
      const found = await ask("delta", query());
      if (signal.aborted) return;
      if (lost) spread({ kind: "joined" });
      lost = false;
      tell(found, spread);
    } catch {
      if (!lost) spread({ kind: "lost" });
      lost = true;
    }
    await new Promise((resolve) => setTimeout(resolve, lost ? RETRY : POLL));
  }
}
