/**
 * Elements from plain calls. Whatever a run says arrives as text nodes, never as markup.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, any>} Attributes `on`: listeners; `style`: properties; true and false: with and without
 */

/**
 * @param {string} tag `div`, or `div.card.wide`
 * @param {Attributes | Child | Child[]} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {any} an element of the tag
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.classList.add(...classes);
  if (isAttributes(attributes)) setAttributes(element, /** @type {Attributes} */ (attributes));
  else children.unshift(/** @type {Child} */ (attributes));
  append(element, children);
  return element;
}

/** @param {any} found */
function isAttributes(found) {
  return found !== null && typeof found === "object" && !(found instanceof Node) && !Array.isArray(found);
}

/** @param {HTMLElement} element @param {Attributes} attributes */
function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/** @param {Element} element @param {any[]} children */
function append(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Puts children in the place of all that were there. @param {Element} element @param {...any} children */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Sets text only where it changed, so that a live page leaves the rest alone. @param {Element} element @param {any} text */
export function say(element, text) {
  const words = String(text);
  if (element.textContent !== words) element.textContent = words;
}

/** Sets an attribute only where it changed. @param {Element} element @param {string} name @param {string} value */
export function put(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

const ICONS = {
  play: ["M8 5.5v13l10.5-6.5z"],
  pause: ["M8 6v12", "M16 6v12"],
  copy: ["M9 9h10v11H9z", "M15 5H5v11"],
  moon: ["M19 14.5A7.5 7.5 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z"],
  sun: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  back: ["M14 6l-6 6 6 6"],
  next: ["M10 6l6 6-6 6"],
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("aria-hidden", "true");
  for (const path of ICONS[name]) {
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("d", path);
    if (name === "play") line.setAttribute("class", "full");
    drawing.append(line);
  }
  return drawing;
}

/**
 * A group of radio buttons that looks like one switch.
 * @param {string} legend @param {Record<string, string>} options words by value @param {string} chosen
 * @param {(value: string) => void} choose
 */
export function choice(legend, options, chosen, choose) {
  const name = `choice-${legend.replace(/\W+/g, "-")}-${Math.random().toString(36).slice(2, 7)}`;
  return h(
    "div.choice",
    { role: "radiogroup", "aria-label": legend },
    Object.entries(options).map(([value, words]) =>
      h("label",
        h("input", { type: "radio", name, value, checked: value === chosen, on: { change: () => choose(value) } }),
        h("span", words),
      ),
    ),
  );
}
