// Shows which words of the source a word of the translation attends to.

import { byId } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { clearMarks, showMarks } from "./marks.js";
import { places } from "./words.js";

// Returns the numbers of the map's target words within [start, end] of the target.
export function rowsAt(map, target, start, end) {
  return places(map.target_words, target)
    .map((place, number) => (place && place[0] < end && start < place[1] ? number : -1))
    .filter((number) => number >= 0);
}

// sentence: of the source, {source, start}, and where it starts in the text.
export function showAttention(word, map, rows, { source, start }) {
  if (!rows.length) return clearAttention(formatMessage("attention.copied", { word }));
  const weights = meansOver(map, rows);
  const marks = places(map.source_words, source)
    .map((place, number) => place && { start: start + place[0], end: start + place[1], weight: weights[number] })
    .filter(Boolean);
  showMarks(marks);
  byId("attention-status").textContent = `${word}: ${heaviest(map.source_words, weights).join(", ")}`;
  return undefined;
}

const meansOver = (map, rows) => map.source_words.map((_, column) =>
  rows.reduce((total, row) => total + map.word_weights[row][column], 0) / rows.length);

// What is not on a word, but on the sentence's end, has no name; nor is a share told that rounds to 0 %.
const heaviest = (names, weights) => names
  .map((name, number) => [name, weights[number]])
  .filter(([name, weight]) => name && weight >= 0.005)
  .sort(([, one], [, other]) => other - one)
  .slice(0, 3)
  .map(([name, weight]) => `${name} ${formatPercent(weight)}`);

export const showHelp = () => clearAttention(formatMessage("attention.help"));

export function clearAttention(text = "") {
  clearMarks();
  byId("attention-status").textContent = text;
}
