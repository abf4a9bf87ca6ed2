// Draws words that attend on one side, words that are attended to on the other, and lines between.

import { element, withArrows } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";

const SVG = "http://www.w3.org/2000/svg";
const FAINTEST = 0.04; // shade that is drawn as a line
const MAX_WORDS = 4; // that are named for a word

export class Lines {
  // showText: called with the text about the word that is pointed at.
  constructor(showText) {
    this.showText = showText;
    this.rows = element("ol", { className: "attention-view-words" });
    this.columns = element("ol", { className: "attention-view-words" });
    this.drawing = document.createElementNS(SVG, "svg");
    this.drawing.setAttribute("aria-hidden", "true");
    this.drawing.setAttribute("preserveAspectRatio", "none");
    this.place = element("div", { className: "attention-view-lines" }, this.rows, this.drawing, this.columns);
    this.beginPointing();
  }

  // A focused word stays, so that heads can be compared. While the pointer is over another word,
  // that word is shown.
  beginPointing() {
    for (const list of [this.rows, this.columns]) {
      withArrows(list, "button");
      list.addEventListener("pointerover", (event) => this.point(placeOf(event.target) ?? this.pinned));
      list.addEventListener("focusin", (event) => this.keep(placeOf(event.target)));
      list.addEventListener("click", (event) => event.target.closest("button")?.focus()); // not all browsers do
    }
    this.place.addEventListener("pointerleave", () => this.point(this.pinned));
    this.place.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.keep(null);
    });
  }

  keep(pointed) {
    this.pinned = pointed;
    this.point(pointed);
  }

  // Shows other words.
  begin(weights) {
    Object.assign(this, { weights, pinned: null });
    this.fill(this.rows, formatMessage("attention.rows"), weights.rows);
    this.fill(this.columns, formatMessage("attention.columns"), weights.columns);
    const height = Math.max(weights.rows.length, weights.columns.length);
    this.drawing.setAttribute("viewBox", `0 0 100 ${height}`);
    this.place.style.setProperty("--height", height);
  }

  fill(list, name, words) {
    list.setAttribute("aria-label", name);
    list.replaceChildren(...words.map((word, number) => {
      const button = element("button", { type: "button", textContent: word, title: word, tabIndex: number ? -1 : 0 });
      button.dataset.number = number;
      return element("li", {}, button);
    }));
  }

  // Shows other weights between the words.
  show(map, shades) {
    Object.assign(this, { map, shades });
    this.point(this.pinned);
  }

  // pointed: {list, number} of a word, or null for all.
  point(pointed) {
    const isRow = pointed?.list === this.rows;
    const isColumn = pointed && !isRow;
    this.shade(this.rows, (row) => (isRow ? Number(row === pointed.number) : isColumn ? this.shadeAt(row, pointed.number) : 0));
    this.shade(this.columns, (column) => (isColumn ? Number(column === pointed.number) : isRow ? this.shadeAt(pointed.number, column) : 0));
    this.drawing.replaceChildren(...this.paths((row, column) => !pointed || (isRow ? row : column) === pointed.number));
    this.showText(pointed ? this.described(pointed, isRow) : "");
  }

  shadeAt(row, column) {
    return this.shades[row * this.weights.columns.length + column];
  }

  shade(list, shadeOf) {
    [...list.children].forEach((item, number) => item.style.setProperty("--shade", shadeOf(number).toFixed(3)));
  }

  paths(isShown) {
    const { rows, columns } = this.weights;
    const lines = [];
    rows.forEach((_, row) => columns.forEach((_, column) => {
      const shade = this.shadeAt(row, column);
      if (shade >= FAINTEST && isShown(row, column)) lines.push(path(row + 0.5, column + 0.5, shade));
    }));
    return lines;
  }

  described({ number }, isRow) {
    const { rows, columns } = this.weights;
    const width = columns.length;
    const others = isRow ? columns : rows;
    const weightOf = (other) => this.map[isRow ? number * width + other : other * width + number];
    const heaviest = others.map((word, other) => [word, weightOf(other)]).filter(([, weight]) => weight > 0)
      .sort(([, one], [, other]) => other - one).slice(0, MAX_WORDS)
      .map(([word, weight]) => `${word} ${formatPercent(weight)}`);
    const key = isRow ? "attention.attends" : "attention.attended";
    return formatMessage(key, { word: (isRow ? rows : columns)[number], others: heaviest.join(", ") || formatMessage("attention.nothing") });
  }
}

function path(from, to, shade) {
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", `M0,${from} C50,${from} 50,${to} 100,${to}`);
  line.setAttribute("stroke-opacity", shade.toFixed(3));
  return line;
}

function placeOf(target) {
  const button = target.closest("button");
  return button && { list: button.closest("ol"), number: Number(button.dataset.number) };
}
