// Draws what all words of a sentence attend to: a row for each word of the translation, a column
// for each of the source. It is a table, so a screen reader reads it as one.

import { byId, element } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { savePicture } from "./picture.js";

const MOST_CELLS = 10_000;
const STEPS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };

let drawn = null;

export function beginGrid() {
  const grid = byId("grid");
  for (const name of ["mouseover", "focusin"]) {
    grid.addEventListener(name, (event) => {
      const cell = event.target.closest("[data-text]");
      if (cell) byId("grid-status").textContent = cell.dataset.text;
    });
  }
  grid.addEventListener("keydown", move);
  byId("save-picture").addEventListener("click", () => savePicture(named(drawn), "attention.png"));
}

export function clearGrid() {
  drawn = null;
  byId("grid").replaceChildren();
  byId("save-picture").disabled = true;
  byId("grid-status").textContent = "";
}

// Returns whether the map could be drawn.
export function drawGrid(map) {
  if (drawn !== map) clearGrid();
  if (map.target_words.length * map.source_words.length > MOST_CELLS) {
    byId("grid-status").textContent = formatMessage("attention.grid.too-long");
    return false;
  }
  byId("grid-status").textContent = formatMessage("attention.grid.help");
  if (drawn !== map) putInPlace(map);
  return true;
}

function putInPlace(map) {
  drawn = map;
  byId("grid").append(tableOf(named(map)));
  byId("save-picture").disabled = false;
  byId("grid").querySelector("[data-text]")?.setAttribute("tabindex", 0);
}

export function markRows(rows) {
  const lines = byId("grid").querySelectorAll("tbody tr");
  lines.forEach((line, number) => line.classList.toggle("here", rows.includes(number)));
}

// The end of a sentence has no name, and no column.
function named({ source_words, target_words: rows, word_weights }) {
  const hasName = (_, column) => Boolean(source_words[column]);
  return { rows, columns: source_words.filter(Boolean), weights: word_weights.map((row) => row.filter(hasName)) };
}

function tableOf({ rows, columns, weights }) {
  const lines = rows.map((word, row) =>
    element("tr", {}, heading("row", word), ...columns.map((name, column) => cell(word, name, weights[row][column]))));
  const corner = element("td", { className: "corner" });
  return element("table", {},
    element("caption", { className: "hidden", textContent: formatMessage("attention.grid.caption") }),
    element("thead", {}, element("tr", {}, corner, ...columns.map((name) => heading("col", name)))),
    element("tbody", {}, ...lines));
}

const heading = (scope, textContent) => element("th", { scope, textContent });

function cell(word, name, weight) {
  const text = formatPercent(weight);
  const cell = element("td", { tabIndex: -1 }, element("span", { className: "hidden", textContent: text }));
  cell.dataset.text = formatMessage("attention.grid.cell", { target: word, source: name, weight: text });
  cell.style.setProperty("--weight", weight.toFixed(3));
  return cell;
}

function move(event) {
  const from = event.target.closest("[data-text]");
  const step = STEPS[event.key];
  if (!from || !step) return;
  event.preventDefault();
  const rows = [...from.closest("tbody").rows];
  const to = rows[rows.indexOf(from.parentElement) + step[0]]?.cells[from.cellIndex + step[1]];
  if (!to?.dataset.text) return;
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}
