/* Defines icons as shapes in a square of 24 × 24, for the canvas and for SVG. */

const SHAPES = {
  ore: "M5 18 3 12 8 5 16 4 21 11 19 19 11 21Z",
  battery: "M9 2h6v3h3v17H6V5h3Z",
  bolt: "M13 2 5 14h6l-2 8 9-13h-6Z",
  heart: "M12 21C5 15 2 12 2 8a5 5 0 0 1 10-2 5 5 0 0 1 10 2c0 4-3 7-10 13Z",
  shield: "M12 2 21 5v7c0 5-4 8-9 10-5-2-9-5-9-10V5Z",
  laser: "M2 10h12V7l8 5-8 5v-3H2Z",
  page: "M5 2h10l4 4v16H5ZM8 9h8v2H8Zm0 4h8v2H8Z",
  flask: "M9 2h6v7l6 11v2H3v-2L9 9Z",
  gear: "M10 2h4l1 3 3-1 3 3-2 3 3 1v3l-3 1 1 3-3 3-3-1-1 3h-4l-1-3-3 1-3-3 1-3-3-1v-3l3-1-2-3 3-3 3 1Zm2 6a4 4 0 1 0 0 8 4 4 0 0 0 0-8Z",
  temple: "M12 2 22 8v2H2V8ZM4 11h3v8H4Zm6.500 0h3v8h-3ZM17 11h3v8h-3ZM2 20h20v2H2Z",
  crate: "M3 3h18v18H3Zm3 3v12h12V6Z",
};
const COLORS = { red: "#d6453d", blue: "#3b7fd4", green: "#2f9e57" };

/** Returns [shape, colour] of an item or a type by its name. */
function look(name) {
  const [kind, color] = name.split("_");
  return {
    ore: ["ore", COLORS[color]], battery: ["battery", COLORS[color]], heart: ["heart", "#e0437c"],
    armor: ["shield", "#7d8793"], laser: ["laser", "#e08a00"], blueprint: ["page", "#3b7fd4"],
    mine: ["ore", COLORS[color]], generator: ["bolt", COLORS[color]], altar: ["heart", "#c2388a"],
    armory: ["shield", "#68727f"], lasery: ["laser", "#c77700"], lab: ["flask", "#1f8f8f"],
    factory: ["gear", "#6d5bb5"], temple: ["temple", "#a07a2c"], block: ["crate", "#8a6d4b"],
  }[kind] || ["crate", "#888888"];
}

const icon = (name) => {
  const [shape, color] = look(name);
  return `<svg viewBox="0 0 24 24" aria-hidden="true"><path fill="${color}" fill-rule="evenodd" d="${SHAPES[shape]}"/></svg>`;
};

const paths = {};
/** Fills a shape into the square at (x, y) with this side. */
function fillShape(ctx, shape, x, y, side, color) {
  paths[shape] ||= new Path2D(SHAPES[shape]);
  ctx.save();
  ctx.translate(x, y);
  ctx.scale(side / 24, side / 24);
  ctx.fillStyle = color;
  ctx.fill(paths[shape], "evenodd");
  ctx.restore();
}

const themed = new Map();
/** Returns a colour of the theme by its name in page.css. */
function theme(name) {
  const root = document.documentElement, key = `${root.dataset.theme} ${name}`;
  if (!themed.has(key)) themed.set(key, getComputedStyle(root).getPropertyValue(`--${name}`).trim());
  return themed.get(key);
}
