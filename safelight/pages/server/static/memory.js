/**
 * What a person chose, kept by the browser; where it keeps nothing, the choice lasts as long as the page.
 */

/** @type {Map<string, any>} */
const here = new Map();

/** @param {string} name @param {any} otherwise */
export function recall(name, otherwise) {
  if (here.has(name)) return here.get(name);
  try {
    const kept = localStorage.getItem(`safelight.${name}`);
    return kept === null ? otherwise : JSON.parse(kept);
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {any} value */
export function remember(name, value) {
  try {
    localStorage.setItem(`safelight.${name}`, JSON.stringify(value));
    here.delete(name); // so that other tabs are heard
  } catch {
    here.set(name, value);
  }
}
