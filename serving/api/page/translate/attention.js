// Shows which words of the source a word of the translation attends to.

import { byId, element } from "../common/elements.js";
import { places } from "./words.js";

export const nameOfSource = (word) => word || "(end)";
export const percent = (weight) => `${Math.round(100 * weight)}\u00a0%`;

// Returns the numbers of the map's target words within [start, end] of the target.
export function rowsAt(map, target, start, end) {
  return places(map.target_words, target)
    .map((place, number) => (place && place[0] < end && start < place[1] ? number : -1))
    .filter((number) => number >= 0);
}

export function showAttention(word, map, rows) {
  if (!rows.length) return clearAttention(`${word}: was taken over from the text`);
  const weights = meansOver(map, rows);
  const names = map.source_words.map(nameOfSource);
  const shown = names.flatMap((textContent, number) => {
    const span = element("span", { textContent });
    span.style.setProperty("--weight", weights[number].toFixed(3));
    return [span, " "];
  });
  byId("attention").replaceChildren(...shown);
  byId("attention-status").textContent = `${word}: ${heaviest(names, weights).join(", ")}`;
  return undefined;
}

const meansOver = (map, rows) => map.source_words.map((_, column) =>
  rows.reduce((total, row) => total + map.word_weights[row][column], 0) / rows.length);

const heaviest = (names, weights) => names
  .map((name, number) => [name, weights[number]])
  .sort(([, one], [, other]) => other - one)
  .slice(0, 3)
  .map(([name, weight]) => `${name} ${percent(weight)}`);

export function clearAttention(text = "") {
  byId("attention").replaceChildren();
  byId("attention-status").textContent = text;
}
