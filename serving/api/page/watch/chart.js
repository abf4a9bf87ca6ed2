// Draws values as they come, as lines; the numbers above them say what is now.

import { element } from "../common/elements.js";

const SECONDS = 120;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 100;
const HEIGHT = 40;
const NONE = "–";

export class Chart {
  // lines: of each its name, its unit, and a function of two readings; all have one scale.
  constructor(place, title, lines) {
    const picture = drawn("svg", { viewBox: `0 -2 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", class: "chart", "aria-hidden": true });
    picture.append(drawn("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }));
    const numbers = element("p", { className: "numbers" });
    this.lines = lines.map(([name, unit, value]) => {
      const number = element("b", { textContent: NONE });
      const line = drawn("polyline", {});
      numbers.append(element("span", {}, name, number));
      picture.append(line);
      return { unit, value, number, line, points: [] };
    });
    this.top = element("small");
    this.card = element("article", { className: "card idle" }, element("h2", {}, title, this.top), numbers, picture);
    place.append(this.card);
  }

  clear() {
    for (const each of this.lines) each.points = [];
  }

  // at: seconds of a clock.
  add(readings, at) {
    for (const each of this.lines) {
      const latest = each.value(readings);
      each.points = [...each.points, [at, latest]].filter(([then]) => then > at - SECONDS);
      each.number.textContent = latest === null ? NONE : written(latest) + each.unit;
    }
    const known = this.lines.flatMap(({ points }) => points.map(([, value]) => value)).filter(Number.isFinite);
    const top = Math.max(...known, 0);
    this.top.textContent = top ? `up to ${written(top)}` : "";
    this.card.classList.toggle("idle", !top);
    for (const { line, points } of this.lines) line.setAttribute("points", placed(points, at, top || 1));
  }
}

function drawn(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function written(value) {
  if (!Number.isFinite(value)) return "more than 300000";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

// The newest point is at the right; a value that is not there is drawn on the floor.
function placed(points, now, top) {
  return points
    .map(([at, value]) => [WIDTH * (1 - (now - at) / SECONDS), Number.isFinite(value) ? value : 0])
    .map(([x, value]) => `${x.toFixed(2)},${(HEIGHT * (1 - value / top)).toFixed(2)}`)
    .join(" ");
}
