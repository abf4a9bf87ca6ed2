// Draws the attention of a sentence as a picture to keep.

import { element } from "../common/elements.js";

const CELL = 28;
const GAP = 8;
const SCALE = 2; // of a screen with many points
const FONT = "15px system-ui, sans-serif";
const [PAPER, INK, RULE, SHADE] = ["#ffffff", "#1b1e26", "#dde1e9", [51, 68, 187]];

// map: {rows, columns, weights}, the words of the translation and of the source.
export function savePicture(map, name) {
  const canvas = drawn(map);
  canvas.toBlob((blob) => {
    const href = URL.createObjectURL(blob);
    element("a", { href, download: name }).click();
    URL.revokeObjectURL(href);
  });
}

function drawn({ rows, columns, weights }) {
  const canvas = element("canvas");
  const pen = canvas.getContext("2d");
  pen.font = FONT;
  const widest = (words) => Math.ceil(Math.max(...words.map((word) => pen.measureText(word).width)));
  const [left, top] = [widest(rows) + 2 * GAP, widest(columns) + 2 * GAP];
  const [width, height] = [left + CELL * columns.length + GAP, top + CELL * rows.length + GAP];
  Object.assign(canvas, { width: SCALE * width, height: SCALE * height });
  pen.scale(SCALE, SCALE);
  Object.assign(pen, { font: FONT, textBaseline: "middle", strokeStyle: RULE, fillStyle: PAPER });
  pen.fillRect(0, 0, width, height);
  weights.forEach((row, y) => row.forEach((weight, x) => {
    pen.fillStyle = `rgb(${SHADE.map((channel) => Math.round(255 + (channel - 255) * weight)).join(" ")})`;
    pen.fillRect(left + CELL * x, top + CELL * y, CELL, CELL);
    pen.strokeRect(left + CELL * x, top + CELL * y, CELL, CELL);
  }));
  pen.fillStyle = INK;
  pen.textAlign = "right";
  rows.forEach((word, y) => pen.fillText(word, left - GAP, top + CELL * (y + 0.5)));
  pen.textAlign = "left";
  pen.rotate(-Math.PI / 2);
  columns.forEach((word, x) => pen.fillText(word, GAP - top, left + CELL * (x + 0.5)));
  return canvas;
}
