/**
 * Numbers, times and states as people read them.
 */

/** 12345 -> "12,345". @param {number | null | undefined} value */
export function count(value) {
  return value === null || value === undefined ? "–" : grouped(value);
}

/** By hand: to load the browser's words for numbers takes longer than all the rest of the page. @param {number} value */
function grouped(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Four digits that matter. @param {number | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("e+", "e").replace("-", "−").replace("e-", "e−");
  if (size >= 1000) return grouped(value);
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

/** With its error: as many digits as the error allows, one more where it begins with a 1. @param {number} value @param {number | null} error */
export function measured(value, error) {
  if (!error) return number(value);
  const size = Math.floor(Math.log10(error));
  const digits = Math.min(6, Math.max(0, (error < 2 * 10 ** size ? 1 : 0) - size));
  return `${value.toFixed(digits)} ± ${error.toFixed(digits)}`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days) return `${days} d ${hours} h`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
}

/** @param {number} value */
export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = value > 0 ? Math.min(4, Math.floor(Math.log10(value) / 3)) : 0;
  return `${Number((value / 1000 ** power).toPrecision(3))} ${units[power]}`;
}

/** @type {Intl.DateTimeFormat | null} made once: it takes as long as a row of the list of runs */
let dates = null;

/** @param {number | null | undefined} seconds since 1970 */
export function moment(seconds) {
  if (!seconds) return "–";
  dates ??= new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  return dates.format(new Date(seconds * 1000));
}

/** A reading in its unit. @param {number | null | undefined} value @param {string} [unit] */
export function reading(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes") return bytes(value);
  if (unit === "s") return duration(value);
  return unit && unit !== "1" ? `${number(value)} ${unit}` : number(value);
}

/** A value of a setting or a fact. @param {any} value @returns {string} */
export function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : number(value);
  if (Array.isArray(value)) return value.length ? value.map(plain).join(", ") : "none";
  if (typeof value === "object") return Object.entries(value).map(([key, each]) => `${key} ${plain(each)}`).join(", ");
  return String(value);
}

const STATES = {
  live: "Training", watched: "Under watch", stale: "No heartbeat", crashed: "Crashed", finished: "Finished",
  interrupted: "Interrupted", refused: "Refused by the preflight", stopped: "Stopped by a diagnosis", empty: "Nothing recorded yet",
};

/**
 * The state in words, with how long ago the last heartbeat was where that matters.
 * @param {{state: string, status?: string | null}} run @param {number | null} age seconds since the last heartbeat
 */
export function stateWords(run, age) {
  if (run.state === "stale") return age === null ? "No heartbeat" : `No heartbeat for ${duration(age)}`;
  if (run.state === "crashed" && run.status === "training") return "Crashed: it says training, but its process is gone";
  if (run.status && !(run.state in STATES)) return run.status;
  if (run.state === "crashed" && run.status && run.status !== "crashed") return capital(run.status);
  return STATES[/** @type {keyof typeof STATES} */ (run.state)] ?? run.state;
}

/** @param {string} text */
export function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
