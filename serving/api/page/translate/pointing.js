// Handles the words of a translation: pointing shows attention, a click shows alternatives.

import { byId, element, withArrows } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { showingErrors } from "../common/server.js";
import { beginAlternatives, closeAlternatives, offer, openAlternatives } from "./alternatives.js";
import { clearAttention, rowsAt, showAttention } from "./attention.js";
import { beginGrid, clearGrid, drawGrid, markRows } from "./grid.js";
import { beginHeads, clearHeads, showHeads } from "./heads.js";
import { beginMarks } from "./marks.js";
import { beginQuality, clearQuality, showQuality } from "./quality.js";
import { Translation } from "./translation.js";
import { parts } from "./words.js";

let translationShown = null; // a translation
let pointed = null; // the sentence that was pointed at last

export function beginWords() {
  const box = byId("translation");
  const onWord = (work) => (event) => {
    const word = event.target.closest(".word");
    if (word && translationShown) work(word, event);
  };
  withArrows(box, ".word");
  for (const name of ["mouseover", "focusin"]) box.addEventListener(name, onWord(attend));
  box.addEventListener("click", onWord(findOthers));
  box.addEventListener("keydown", onWord((word, event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    findOthers(word);
  }));
  beginAlternatives();
  beginMarks();
  beginQuality(showShownQuality);
  beginGrid(() => drawSentence());
  beginHeads(showSentenceHeads);
  hideWords();
}

export const shownText = () => translationShown?.text ?? "";

export function showWords(request, source, targets) {
  translationShown = new Translation(request, source, targets);
  pointed = translationShown.sentences[0];
  draw();
}

export function hideWords() {
  translationShown = pointed = null;
  clearAttention(formatMessage("attention.help"));
  clearGrid();
  clearHeads();
  clearQuality();
}

function draw() {
  const { request: { target }, sentences } = translationShown;
  const elements = sentences.flatMap((sentence, number) =>
    parts(sentence.target, target).map((part) => (part.isWord ? wordOf(part, number) : part.text)));
  byId("translation").replaceChildren(...elements);
  const first = byId("translation").querySelector(".word");
  if (first) first.tabIndex = 0;
  clearAttention(formatMessage("attention.help"));
  drawSentence();
  showSentenceHeads();
  showShownQuality();
}

function wordOf({ text, start }, sentence) {
  const word = element("span", { className: "word", textContent: text, tabIndex: -1 });
  word.setAttribute("role", "button");
  word.setAttribute("aria-haspopup", "menu");
  word.setAttribute("aria-expanded", "false");
  Object.assign(word.dataset, { sentence, start, end: start + text.length });
  return word;
}

async function attend(word) {
  const sentence = translationShown.sentences[word.dataset.sentence];
  try {
    const map = await translationShown.mapOf(sentence);
    if (!word.isConnected || !word.matches(":hover, :focus")) return;
    const rows = rowsAt(map, sentence.target, Number(word.dataset.start), Number(word.dataset.end));
    showAttention(word.textContent, map, rows, sentence);
    pointed = sentence;
    showSentenceHeads();
    if (await drawSentence()) markRows(rows);
  } catch (error) {
    clearAttention(error.message);
  }
}

// Draws the grid of the sentence if it is open; returns whether it is.
async function drawSentence() {
  if (!byId("grid-details").open) return false;
  if (!pointed) return clearGrid();
  const sentence = pointed;
  const map = await showingErrors(byId("grid-status"), () => translationShown.mapOf(sentence));
  if (!map || sentence !== pointed) return false;
  return drawGrid(map);
}

function showShownQuality() {
  const translation = translationShown;
  return translation && showQuality(translation, () => translation === translationShown);
}

function showSentenceHeads() {
  const sentence = pointed;
  return sentence && showHeads(translationShown, sentence, () => sentence === pointed);
}

async function findOthers(word) {
  const translation = translationShown;
  const sentence = translation.sentences[word.dataset.sentence];
  const signal = openAlternatives(word);
  const failed = byId("translate-error");
  const ways = await showingErrors(failed, () => translation.waysFrom(sentence, Number(word.dataset.start), signal));
  if (!ways || !word.isConnected) return failed.textContent && closeAlternatives(false);
  return offer(word, ways, (text) => choose(sentence, text));
}

function choose(sentence, text) {
  translationShown.choose(sentence, text);
  byId("translate-status").textContent = text;
  draw();
  byId("translation").focus();
}
