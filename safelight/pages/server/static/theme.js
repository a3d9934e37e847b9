/**
 * Dark or light: as the system says, until a person says otherwise; then that is remembered.
 */

import { fill, h, icon } from "./element.js";
import { recall, remember } from "./memory.js";

const system = matchMedia("(prefers-color-scheme: light)");
/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {Map<string, string>} */
const known = new Map();

/** @returns {"dark" | "light"} */
export function theme() {
  const chosen = recall("theme", null);
  if (chosen === "dark" || chosen === "light") return chosen;
  return system.matches ? "light" : "dark";
}

/** Puts the theme on the page, now and whenever the system changes. */
export function startTheme() {
  apply();
  system.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("beforeprint", () => apply("light")); // dark ink on white paper
  addEventListener("afterprint", apply);
}

/** @param {unknown} [wanted] */
function apply(wanted) {
  document.documentElement.dataset.theme = wanted === "light" ? wanted : theme();
  known.clear();
  for (const listener of listeners) listener();
}

/** @param {() => void} listener @returns {() => void} ends it */
export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The value of a CSS colour such as `--line-1`: canvases cannot read them by themselves. @param {string} name */
export function colour(name) {
  let value = known.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    known.set(name, value);
  }
  return value;
}

export function themeButton() {
  const button = h("button.button.plain", { type: "button", id: "theme", on: { click: turn } });
  const show = () => {
    const other = theme() === "dark" ? "light" : "dark";
    fill(button, icon(other === "light" ? "sun" : "moon"), h("span.hidden-text", `Change to the ${other} theme`));
  };
  onTheme(show);
  show();
  return button;
}

function turn() {
  remember("theme", theme() === "dark" ? "light" : "dark");
  apply();
}
