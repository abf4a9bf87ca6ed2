// Draws readings of the last minutes as lines over axes; the numbers above them are the latest.

import { element } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";

const SECONDS = 120;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 100;
const HEIGHT = 40;
const DASH = 1.5;
const NONE = "–";
const STEPS = [1, 2, 4, 6, 8, 10]; // the first digits of the largest tick
const NUM_TICKS = 2; // above zero
const MINUTES_AGO = [2, 1, 0];

export class Chart {
  // describe: returns a reading in words, with its unit. atLeast: what the scale reaches. about: says what is
  // going to be drawn, while nothing is. lines: of each its name and a function of two readings; all have one scale.
  constructor(place, { title, about, describe, atLeast, lines }) {
    this.describe = describe;
    this.atLeast = atLeast;
    const picture = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": true });
    picture.append(...this.heights().map((y) => drawn("line", { x1: 0, x2: WIDTH, y1: y, y2: y })));
    const numbers = element("p", { className: "numbers" });
    this.lines = lines.map(([name, value]) => {
      const number = element("b", { textContent: NONE });
      const line = drawn("path", {});
      numbers.append(element("span", {}, name, number));
      picture.append(line);
      return { value, number, line, points: [] };
    });
    this.ticks = this.heights().map(() => element("span"));
    const times = MINUTES_AGO.map((minutes) => element("span", { textContent: formatMessage(minutes ? "load.minutes-ago" : "load.now", { minutes }) }));
    const [aside, below] = [element("div", { className: "scale-aside" }, ...this.ticks), element("div", { className: "ticks" }, ...times)];
    for (const axis of [aside, below]) axis.setAttribute("aria-hidden", "true");
    const drawing = element("div", { className: "chart" }, aside, picture, element("p", { className: "note", textContent: about }), below);
    this.card = element("article", { className: "card idle" }, element("h2", { textContent: title }), numbers, drawing);
    place.append(this.card);
    this.showScale(atLeast);
  }

  heights() {
    return Array.from({ length: NUM_TICKS + 1 }, (_, number) => HEIGHT * (1 - number / NUM_TICKS));
  }

  clear() {
    for (const line of this.lines) line.points = [];
  }

  // at: seconds of a clock.
  add(readings, at) {
    for (const line of this.lines) {
      const latest = line.value(readings);
      line.points = [...line.points, [at, latest]].filter(([then]) => then > at - SECONDS);
      const lastPoint = line.points.findLast(([, value]) => value !== null);
      line.number.textContent = lastPoint ? this.describe(lastPoint[1]) : NONE;
    }
    const values = this.lines.flatMap(({ points }) => points.map(([, value]) => value ?? 0));
    this.card.classList.toggle("idle", !values.some((value) => value > 0));
    const top = scaleFor(Math.max(...values, this.atLeast));
    this.showScale(top);
    for (const { line, points } of this.lines) line.setAttribute("d", placed(points, at, top));
  }

  showScale(top) {
    this.ticks.forEach((tick, number) => { tick.textContent = this.describe((top * number) / NUM_TICKS); });
  }
}

function drawn(name, attributes) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

// Returns the end of a scale that has round ticks.
function scaleFor(value) {
  const magnitude = 10 ** Math.floor(Math.log10(value));
  return magnitude * STEPS.find((step) => step * magnitude >= value * (1 - Number.EPSILON));
}

// Returns the path of a line: the newest point is at its right, and it breaks where there is no value. A point
// alone is a dash of DASH.
function placed(points, now, top) {
  let begins = true;
  return points.map(([at, value], number) => {
    if (value === null) {
      begins = true;
      return "";
    }
    const [x, y] = [WIDTH * (1 - (now - at) / SECONDS), HEIGHT * (1 - value / top)];
    const isAlone = begins && (points[number + 1]?.[1] ?? null) === null;
    const step = `${begins ? "M" : "L"}${x.toFixed(2)},${y.toFixed(2)}${isAlone ? `h-${DASH}` : ""}`;
    begins = false;
    return step;
  }).join("");
}
