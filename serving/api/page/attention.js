// Shows which words of the source a word of the translation attends to.

import { byId, element } from "./elements.js";
import { places } from "./words.js";

const END = "end of the sentence";

// Means, over the target's words within [start, end], of what each source word weighs.
export function weightsAt(map, target, start, end) {
  const overlapping = places(map.target_words, target)
    .map((place, number) => (place && place[0] < end && start < place[1] ? number : -1))
    .filter((number) => number >= 0);
  if (!overlapping.length) return null;
  return map.source_words.map((_, column) => {
    const sum = overlapping.reduce((total, row) => total + map.word_weights[row][column], 0);
    return sum / overlapping.length;
  });
}

export function showAttention(word, map, weights) {
  const names = map.source_words.map((name) => name || END);
  const shown = names.flatMap((textContent, number) => {
    const span = element("span", { textContent });
    span.style.setProperty("--weight", weights[number].toFixed(3));
    return [span, " "];
  });
  byId("attention").replaceChildren(...shown);
  const heaviest = names
    .map((name, number) => [name, weights[number]])
    .sort(([, one], [, other]) => other - one)
    .slice(0, 3)
    .map(([name, weight]) => `${name} ${Math.round(100 * weight)}\u00a0%`);
  byId("attention-said").textContent = `${word}: ${heaviest.join(", ")}`;
}

export function clearAttention(said = "") {
  byId("attention").replaceChildren();
  byId("attention-said").textContent = said;
}
