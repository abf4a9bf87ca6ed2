// Finds words in texts. Knows nothing of the page.

import { Refused } from "./server.js";

const segmenters = new Map();

// Cuts a text into parts, {text, start, isWord}.
export function parts(text, language) {
  const found = segmenterOf(language).segment(text);
  return Array.from(found, ({ segment, index, isWordLike }) => ({ text: segment, start: index, isWord: isWordLike }));
}

function segmenterOf(language) {
  if (!segmenters.has(language)) segmenters.set(language, made(language));
  return segmenters.get(language);
}

function made(language) {
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

// Cuts a text into the sentences whose words are given; what stands between goes with the latter.
export function sentencesOf(text, wordsOfEach) {
  let from = 0;
  const ends = wordsOfEach.map((words) => {
    from = places(words, text, from).reduce((end, place) => place?.[1] ?? end, from);
    return from;
  });
  ends[ends.length - 1] = text.length;
  return ends.map((end, number) => text.slice(number ? ends[number - 1] : 0, end));
}

// Reads lines of `term = translation, translation`.
export function glossaryOf(text) {
  const glossary = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const [term, ...rest] = line.split("=");
    const translations = rest.join("=").split(",").map((each) => each.trim()).filter(Boolean);
    if (!term.trim() || !translations.length) throw new Refused(`Glossary: “${line.trim()}” should read term = translation.`);
    glossary[term.trim()] = translations;
  }
  return glossary;
}
