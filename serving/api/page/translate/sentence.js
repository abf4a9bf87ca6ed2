// Shows the attention of one sentence of the translation, of all its words or by layer and head.

import { byId, fillSelect } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { showingErrors } from "../common/server.js";
import { beginGrid, clearGrid, drawGrid } from "./grid.js";
import { beginHeads, clearHeads, showHeads } from "./heads.js";

const KEY = "attendant-attention-closed";
const MOST_CHARACTERS = 2_000; // of a text whose attention is asked for before somebody points at a word
const NAME_CHARACTERS = 60; // of a sentence where it is chosen

let translation = null;
let sentence = null; // the one that is shown

export function beginSentence() {
  byId("attention").open = !localStorage.getItem(KEY);
  byId("attention").addEventListener("toggle", () => {
    if (byId("attention").open) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, "closed");
    drawSentence();
  });
  byId("sentence").addEventListener("change", ({ target }) => showSentence(translation.sentences[target.value]));
  for (const input of document.getElementsByName("attention-view")) input.addEventListener("change", showView);
  beginGrid();
  beginHeads();
}

const isByHead = () => document.querySelector("[name=attention-view]:checked").value === "heads";

function showView() {
  byId("grid-view").hidden = isByHead();
  byId("heads-view").hidden = !isByHead();
  byId("attention").classList.toggle("by-head", isByHead());
  drawSentence();
}

// Its drawing stays until another one comes.
export function leaveSentence() {
  translation = sentence = null;
}

export function hideSentence() {
  byId("attention").hidden = true;
  clearGrid();
  clearHeads();
}

export function showTranslation(newTranslation, newSentence) {
  [translation, sentence] = [newTranslation, newSentence];
  byId("attention").hidden = false;
  fillSelect(byId("sentence"), translation.sentences.map(({ target }, number) => [number, nameOf(target, number)]));
  byId("sentence").value = translation.sentences.indexOf(sentence);
  byId("sentence").hidden = translation.sentences.length < 2;
  if (translation.text.length <= MOST_CHARACTERS) drawSentence();
}

function nameOf(target, number) {
  const text = target.trim();
  return formatMessage("attention.sentence.name", {
    number: number + 1, text: text.length > NAME_CHARACTERS ? `${text.slice(0, NAME_CHARACTERS)} …` : text,
  });
}

// Returns whether the words of the sentence are drawn.
export async function showSentence(newSentence) {
  sentence = newSentence;
  byId("sentence").value = translation.sentences.indexOf(sentence);
  return drawSentence();
}

async function drawSentence() {
  if (!translation || !byId("attention").open) return false;
  const [shownTranslation, shownSentence] = [translation, sentence];
  const isShown = () => translation === shownTranslation && sentence === shownSentence;
  if (isByHead()) {
    await showHeads(translation, sentence, isShown);
    return false;
  }
  const map = await showingErrors(byId("grid-status"), () => shownTranslation.mapOf(shownSentence));
  return Boolean(map) && isShown() && drawGrid(map);
}
