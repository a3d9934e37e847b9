/**
 * Colours for numbers: one map whose lightness rises evenly, one with two ends around a middle. Both survive colour blindness.
 */

/** Anchors of matplotlib's inferno (CC0), lifted at the dark end so that it differs from the ground. */
const EMBER = ["#0b0620", "#1d0c45", "#420a68", "#6a176e", "#932667", "#bc3754", "#dd513a", "#f37819", "#fca50a", "#f6d746", "#fcffa4"].map(parse);
/** Blue through grey to orange: after Okabe and Ito. */
const AROUND = ["#3fa7e6", "#2f7fb3", "#2b5878", "#2c3b48", "#2b2927", "#4d3522", "#86511a", "#c47518", "#ffab3d"].map(parse);
const SIZE = 256;

/** @param {string} hex @returns {[number, number, number]} */
function parse(hex) {
  return /** @type {any} */ ([1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16)));
}

/** @param {number[][]} anchors */
function table(anchors) {
  return Array.from({ length: SIZE }, (_, i) => {
    const at = (i / (SIZE - 1)) * (anchors.length - 1);
    const low = Math.min(anchors.length - 2, Math.floor(at));
    const [r, g, b] = anchors[low].map((value, part) => Math.round(value + (at - low) * (anchors[low + 1][part] - value)));
    return `rgb(${r} ${g} ${b})`;
  });
}

const TABLES = { ember: table(EMBER), around: table(AROUND) };

/** @typedef {keyof typeof TABLES} Colours */

/** @param {Colours} name @param {number} share 0 to 1 */
export function shade(name, share) {
  return TABLES[name][Math.max(0, Math.min(SIZE - 1, Math.round(share * (SIZE - 1))))];
}
