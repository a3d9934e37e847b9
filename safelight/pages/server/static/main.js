/**
 * The beginning: where the data comes from, the masthead, and the page that the address means.
 */

import { fill, h } from "./element.js";
import { openCompare } from "./page/compare.js";
import { openRun } from "./page/run.js";
import { openRuns } from "./page/runs.js";
import { parseRoute } from "./router.js";
import { reportSource } from "./source/report_data.js";
import { serverSource } from "./source/server.js";
import { startTheme, themeButton } from "./theme.js";
import { moment } from "./words.js";

/** @typedef {{close: () => void, show?: (route: import("./router.js").Route) => boolean}} Page `show`: whether it can go there itself */

const PAGES = { runs: openRuns, run: openRun, compare: openCompare };

function start() {
  startTheme();
  const report = document.getElementById("report-data");
  const data = report && JSON.parse(report.textContent ?? "");
  const source = data ? reportSource(data) : serverSource();
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  buildMasthead(source, data);
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault(); // the fragment is the address of a page
    main.focus();
  });
  /** @type {Page | null} */
  let page = null;
  const go = () => {
    const route = data ? { ...parseRoute(location.hash), page: /** @type {"run"} */ ("run"), id: data.run.id } : parseRoute(location.hash);
    showCurrent(route.page);
    if (page?.show?.(route)) return;
    page?.close();
    page = PAGES[route.page](main, source, route);
    scrollTo(0, 0);
  };
  addEventListener("hashchange", go);
  go();
}

/** @param {import("./source/server.js").Source} source @param {any} data */
function buildMasthead(source, data) {
  const masthead = /** @type {HTMLElement} */ (document.getElementById("masthead"));
  const brand = h("a.brand", { href: "#/" }, h("span.lamp", { "aria-hidden": "true" }), "Safelight");
  const links = [h("a", { href: "#/", "data-page": "runs" }, "Runs"), h("a", { href: "#/compare/", "data-page": "compare" }, "Compare")];
  fill(masthead, brand,
    h("nav", { "aria-label": "Pages" }, source.kind === "server" && links,
      data && h("span.aside", `Report of ${data.run.name}, made ${moment(data.made)}`)),
    themeButton());
}

/** @param {string} page */
function showCurrent(page) {
  for (const link of document.querySelectorAll(".masthead nav a")) {
    if (link instanceof HTMLElement && link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

start();
