/**
 * Which page an address means: #/ the runs, #/run/ID/TAB one of them, #/compare/ID,ID several.
 */

/**
 * @typedef {{page: "runs" | "run" | "compare", id: string, tab: Tab, ids: string[]}} Route
 * @typedef {"charts" | "samples" | "findings" | "data"} Tab
 */

/** @type {Tab[]} */
export const TABS = ["charts", "samples", "findings", "data"];

/** @param {string} hash @returns {Route} */
export function parseRoute(hash) {
  const [page, id = "", tab = ""] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (page === "run" && id) return { page, id, tab: TABS.find((each) => each === tab) ?? "charts", ids: [] };
  if (page === "compare") return { page, id: "", tab: "charts", ids: id.split(",").filter(Boolean).slice(0, 8) };
  return { page: "runs", id: "", tab: "charts", ids: [] };
}

/** @param {string} id @param {Tab} [tab] */
export function runAddress(id, tab = "charts") {
  return `#/run/${encodeURIComponent(id)}${tab === "charts" ? "" : `/${tab}`}`;
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
