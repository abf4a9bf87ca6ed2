// Handles the words of a translation: pointing shows attention, a click shows alternatives.

import { byId, element, withArrows } from "../common/elements.js";
import { showingErrors } from "../common/server.js";
import { beginAlternatives, closeAlternatives, offer, openAlternatives } from "./alternatives.js";
import { clearAttention, rowsAt, showAttention, showHelp } from "./attention.js";
import { markRows } from "./grid.js";
import { beginMarks } from "./marks.js";
import { beginQuality, clearQuality, showQuality } from "./quality.js";
import { beginSentence, leaveSentence, showSentence, showTranslation } from "./sentence.js";
import { Translation } from "./translation.js";
import { parts } from "./words.js";

let translationShown = null; // a translation

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
  beginSentence();
}

export const shownText = () => translationShown?.text ?? "";

export function showWords(request, source, targets) {
  translationShown = new Translation(request, source, targets);
  draw(translationShown.sentences[0]);
}

export function hideWords() {
  translationShown = null;
  byId("translated").classList.remove("whole");
  clearAttention();
  leaveSentence();
  clearQuality();
}

// sentence: whose attention is shown.
function draw(sentence) {
  const { request: { target }, sentences } = translationShown;
  const elements = sentences.flatMap((sentence, number) =>
    parts(sentence.target, target).map((part) => (part.isWord ? wordOf(part, number) : part.text)));
  byId("translation").replaceChildren(...elements);
  byId("translated").classList.add("whole");
  const first = byId("translation").querySelector(".word");
  if (first) first.tabIndex = 0;
  showHelp();
  showTranslation(translationShown, sentence);
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
    if (await showSentence(sentence)) markRows(rows);
  } catch (error) {
    clearAttention(error.message);
  }
}

function showShownQuality() {
  const translation = translationShown;
  return translation && showQuality(translation, () => translation === translationShown);
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
  draw(sentence);
  byId("translation").focus();
}
