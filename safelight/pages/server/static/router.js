/**
 * Which page an address means: #/ the runs, #/run/ID/TAB?steps=FIRST-LAST one of them, #/compare/ID,ID several.
 */

/**
 * @typedef {{page: "runs" | "run" | "compare", id: string, tab: Tab, ids: string[], steps: Steps}} Route
 * @typedef {{first: number, last: number} | null} Steps the part that the charts show; null: everything
 * @typedef {"charts" | "samples" | "findings" | "signals" | "data" | "reproduce"} Tab
 */

/** @type {Tab[]} */
export const TABS = ["charts", "samples", "findings", "signals", "data", "reproduce"];

/** @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page, id = "", tab = ""] = path.split("/").map(decode);
  const steps = parseSteps(query);
  if (page === "run" && id) return { page, id, tab: TABS.find((each) => each === tab) ?? "charts", ids: [], steps };
  if (page === "compare") return { page, id: "", tab: "charts", ids: id.split(",").filter(Boolean).slice(0, 8), steps };
  return { page: "runs", id: "", tab: "charts", ids: [], steps: null };
}

/** @param {string} query @returns {Steps} */
function parseSteps(query) {
  const found = /^steps=(\d{1,12})-(\d{1,12})$/.exec(query);
  return found && Number(found[1]) < Number(found[2]) ? { first: Number(found[1]), last: Number(found[2]) } : null;
}

/** @param {string} id @param {Tab} [tab] @param {Steps} [steps] */
export function runAddress(id, tab = "charts", steps = null) {
  return `#/run/${encodeURIComponent(id)}${tab === "charts" ? "" : `/${tab}`}${steps ? `?steps=${steps.first}-${steps.last}` : ""}`;
}

/** @param {string[]} ids */
export function compareAddress(ids) {
  return `#/compare/${ids.map(encodeURIComponent).join(",")}`;
}

/** @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return "";
  }
}
