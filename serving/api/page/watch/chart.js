// Draws values as they come, as lines; the numbers above them say what is now.

import { element } from "../common/elements.js";
import { formatMessage, formatNumber } from "../common/messages.js";

const SECONDS = 120;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 100;
const HEIGHT = 40;
const NONE = "–";

export class Chart {
  // lines: of each its name, the message of a value with its unit if it has one, and a function of two
  // readings; all have one scale.
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
    for (const line of this.lines) line.points = [];
  }

  // at: seconds of a clock.
  add(readings, at) {
    for (const line of this.lines) {
      const latest = line.value(readings);
      line.points = [...line.points, [at, latest]].filter(([then]) => then > at - SECONDS);
      line.number.textContent = latest === null ? NONE : withUnit(formatReading(latest), line.unit);
    }
    const values = this.lines.flatMap(({ points }) => points.map(([, value]) => value)).filter(Number.isFinite);
    const top = Math.max(...values, 0);
    this.top.textContent = top ? formatMessage("load.up-to", { value: formatReading(top) }) : "";
    this.card.classList.toggle("idle", !top);
    for (const { line, points } of this.lines) line.setAttribute("points", placed(points, at, top || 1));
  }
}

function drawn(name, attributes) {
  const created = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) created.setAttribute(key, value);
  return created;
}

function formatReading(value) {
  if (!Number.isFinite(value)) return formatMessage("load.more-than", { value: 300_000 });
  return formatNumber(value, { maximumFractionDigits: value < 10 ? 1 : 0 });
}

const withUnit = (value, unit) => (unit ? formatMessage(unit, { value }) : value);

// The newest point is at the right; a value that is not there is drawn on the floor.
function placed(points, now, top) {
  return points
    .map(([at, value]) => [WIDTH * (1 - (now - at) / SECONDS), Number.isFinite(value) ? value : 0])
    .map(([x, value]) => `${x.toFixed(2)},${(HEIGHT * (1 - value / top)).toFixed(2)}`)
    .join(" ");
}
