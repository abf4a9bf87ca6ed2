// Finds words in texts. Knows nothing of the page.

import { formatMessage } from "../common/messages.js";
import { Refused } from "../common/server.js";

const FIRST_WORDS = 4;
const PLACEHOLDER = /^X\d+$/; // stands for an address, a number and the like

const segmenters = new Map();

// Cuts a text into parts, {text, start, isWord}.
export function parts(text, language) {
  const segments = segmenterOf(language).segment(text);
  return Array.from(segments, ({ segment, index, isWordLike }) => ({ text: segment, start: index, isWord: isWordLike }));
}

function segmenterOf(language) {
  if (!segmenters.has(language)) segmenters.set(language, createSegmenter(language));
  return segmenters.get(language);
}

function createSegmenter(language) {
  const options = { granularity: "word" };
  try {
    return new Intl.Segmenter(language.replace("_", "-"), options);
  } catch { // a code of a model's own
    return new Intl.Segmenter("und", options);
  }
}

// Finds each word of a list in a text, in order: its [start, end], or null where it is not written so.
export function places(words, text, from = 0) {
  let place = from;
  return words.map((word) => {
    const start = word ? text.indexOf(word, place) : -1;
    if (start < 0) return null;
    place = start + word.length;
    return [start, place];
  });
}

// Cuts a text into the sentences whose words are given; what stands between goes with the former.
export function sentencesOf(text, wordsOfEach) {
  let from = 0;
  const starts = wordsOfEach.map((words, number) => {
    const start = number ? startOf(words, text, from) : 0;
    from = places(words, text, start).reduce((end, place) => place?.[1] ?? end, start);
    return start;
  });
  return starts.map((start, number) => text.slice(start, starts[number + 1]));
}

// Finds where a sentence starts by its first words, up to one that the server reads by another name.
function startOf(words, text, from) {
  const placeholder = words.findIndex((word) => PLACEHOLDER.test(word));
  const first = words.slice(0, placeholder < 0 ? FIRST_WORDS : Math.min(placeholder, FIRST_WORDS)).filter(Boolean);
  const pattern = first.map((word) => word.replace(/[^\p{L}\p{N}]/gu, "\\$&")).join("\\s*");
  const offset = text.slice(from).search(new RegExp(pattern));
  return from + Math.max(offset, 0);
}

// Reads lines of `term = translation, translation`.
export function glossaryOf(text) {
  const glossary = {};
  for (const line of text.split("\n").filter((line) => line.trim())) {
    const [term, ...rest] = line.split("=");
    const translations = rest.join("=").split(",").map((translation) => translation.trim()).filter(Boolean);
    if (!term.trim() || !translations.length) throw new Refused(formatMessage("translate.glossary.line", { line: line.trim() }));
    glossary[term.trim()] = translations;
  }
  return glossary;
}
