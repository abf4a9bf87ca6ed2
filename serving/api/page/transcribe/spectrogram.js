// Draws the log-mel spectrogram of a window, as the model reads it, and over it what a word attends
// to, the words at their times, and the place that is played.

import { byId } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { formatClock } from "./times.js";

const [WORDS_HEIGHT, SOUND_HEIGHT, AXIS_HEIGHT] = [26, 168, 22]; // pixels, one below the other
const LEAST_WIDTH = 64; // pixels of a second, so that short words can be seen
const GAP = 6; // pixels between words
const CURVE_HEIGHT = 150; // pixels of the largest weight
const LOUDEST = 0.85; // share of the ink at the loudest place
const DARKEST = 0.6; // share of the accent at the largest weight
const DARK = matchMedia("(prefers-color-scheme: dark)");

let shown = null; // what `drawSpectrogram` was called with
let sound = null; // {window, ink, image} of the spectrogram that was drawn last

// goTo: is called with the seconds of a place that is clicked.
export function beginSpectrogram(goTo) {
  byId("spectrogram").addEventListener("click", ({ offsetX, target }) => {
    const { window: { start }, end } = shown;
    goTo(start + (offsetX / target.clientWidth) * (end - start));
  });
  new ResizeObserver(redraw).observe(byId("spectrogram-frame"));
  DARK.addEventListener("change", redraw);
  addEventListener("themechange", redraw);
}

function redraw() {
  if (shown) drawSpectrogram(shown);
}

export function clearSpectrogram() {
  shown = null;
  sound = null;
}

// window: as in `verbose_json`, with its words. end: seconds where the recording, or the window, ends.
// word: whose attention is shown, or null. seconds: the place that is played.
export function drawSpectrogram({ window, end, word, seconds }) {
  const hasMoved = shown?.window !== window || shown.word !== word || shown.seconds !== seconds;
  shown = { window, end, word, seconds };
  const [canvas, frame] = [byId("spectrogram"), byId("spectrogram-frame")];
  if (!frame.clientWidth) return; // its tab is not shown
  const width = Math.max(frame.clientWidth, LEAST_WIDTH * (end - window.start));
  const pen = sized(canvas, width, WORDS_HEIGHT + SOUND_HEIGHT + AXIS_HEIGHT);
  const { color: ink, backgroundColor: paper, accentColor: accent } = getComputedStyle(canvas);
  const placeOf = (time) => ((time - window.start) / (end - window.start)) * width;
  const wholeWidth = placeOf(window.start + window.seconds); // with the silence after the recording
  pen.drawImage(soundOf(window, ink), 0, WORDS_HEIGHT, wholeWidth, SOUND_HEIGHT);
  if (word?.attention) drawAttention(pen, bytesOf(word.attention), wholeWidth, accent);
  drawAxis(pen, window.start, end, placeOf, ink);
  drawWords(pen, window.words, word, placeOf, { ink, paper, accent });
  drawHead(pen, placeOf(seconds), { ink, paper });
  canvas.setAttribute("aria-label", formatMessage("transcribe.spectrogram.label", { start: formatClock(window.start), end: formatClock(end) }));
  if (hasMoved) bringIntoView(frame, placeOf(word ? word.start : seconds));
}

// Returns what draws on a canvas of so many pixels of the page.
function sized(canvas, width, height) {
  const scale = devicePixelRatio;
  const [columns, rows] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== columns || canvas.height !== rows) {
    Object.assign(canvas, { width: columns, height: rows });
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `13px ${getComputedStyle(canvas).fontFamily}`;
  return pen;
}

// Returns a picture with a point for each frame and mel band, low bands below.
function soundOf(window, ink) {
  if (sound?.window === window && sound.ink === ink) return sound.image;
  const { mels, frames } = window;
  const levels = bytesOf(window.spectrogram);
  const image = tinted(frames, mels, ink, (column, row) => LOUDEST * (levels[(mels - 1 - row) * frames + column] / 255) ** 2);
  sound = { window, ink, image };
  return image;
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

// Returns a picture in one colour; opacity: returns that of a column and row, from 0 to 1.
function tinted(width, height, colour, opacity) {
  const pixels = new ImageData(width, height);
  for (let place = 0; place < width * height; place += 1) {
    pixels.data[4 * place + 3] = 255 * opacity(place % width, Math.floor(place / width));
  }
  const canvas = new OffscreenCanvas(width, height);
  const pen = canvas.getContext("2d");
  pen.putImageData(pixels, 0, 0);
  Object.assign(pen, { globalCompositeOperation: "source-in", fillStyle: colour });
  pen.fillRect(0, 0, width, height);
  return canvas;
}

// weights: of the positions of a window, of which the largest is 255. The darker, the more; a curve
// has the same weights as its heights.
function drawAttention(pen, weights, width, accent) {
  const image = tinted(weights.length, 1, accent, (column) => DARKEST * Math.sqrt(weights[column] / 255));
  pen.drawImage(image, 0, WORDS_HEIGHT, width, SOUND_HEIGHT);
  const bottom = WORDS_HEIGHT + SOUND_HEIGHT;
  pen.beginPath();
  weights.forEach((weight, number) => {
    pen.lineTo(((number + 0.5) / weights.length) * width, bottom - (weight / 255) * CURVE_HEIGHT);
  });
  Object.assign(pen, { strokeStyle: accent, lineWidth: 2 });
  pen.stroke();
}

function drawAxis(pen, start, end, placeOf, ink) {
  Object.assign(pen, { fillStyle: ink, textBaseline: "bottom", textAlign: "center" });
  const top = WORDS_HEIGHT + SOUND_HEIGHT;
  for (let second = Math.ceil(start); second <= end; second += 1) {
    const place = placeOf(second);
    pen.fillRect(place, top, 1, 4);
    const label = formatClock(second);
    const half = pen.measureText(label).width / 2;
    if (place > half && place + half < placeOf(end)) pen.fillText(label, place, top + AXIS_HEIGHT);
  }
}

// The chosen word is always named, others where there is room.
function drawWords(pen, words, chosen, placeOf, { ink, paper, accent }) {
  Object.assign(pen, { textBaseline: "middle", textAlign: "left" });
  const labelOf = (word) => {
    const text = word.word.trim();
    const length = pen.measureText(text).width;
    const left = Math.max(GAP, Math.min(placeOf(word.start), placeOf(shown.end) - length - GAP));
    return { text, left, right: left + length };
  };
  const label = chosen && labelOf(chosen);
  let free = 0;
  for (const word of words) {
    const { text, left, right } = labelOf(word);
    const isCovered = label && word !== chosen && left < label.right + GAP && label.left < right + GAP;
    if (word === chosen || left < free || isCovered) continue;
    pen.fillStyle = ink;
    pen.fillText(text, left, WORDS_HEIGHT / 2);
    free = right + GAP;
  }
  if (!label) return;
  pen.fillStyle = accent;
  pen.fillRect(label.left - GAP / 2, 2, label.right - label.left + GAP, WORDS_HEIGHT - 4);
  pen.fillRect(placeOf(chosen.start), WORDS_HEIGHT - 2, Math.max(2, placeOf(chosen.end) - placeOf(chosen.start)), 3);
  pen.fillStyle = paper;
  pen.fillText(label.text, label.left, WORDS_HEIGHT / 2);
}

function drawHead(pen, place, { ink, paper }) {
  for (const [colour, width] of [[paper, 4], [ink, 2]]) {
    pen.fillStyle = colour;
    pen.fillRect(place - width / 2, WORDS_HEIGHT, width, SOUND_HEIGHT);
  }
}

function bringIntoView(frame, place) {
  if (place < frame.scrollLeft || place > frame.scrollLeft + frame.clientWidth - LEAST_WIDTH) {
    frame.scrollLeft = place - frame.clientWidth / 4;
  }
}
