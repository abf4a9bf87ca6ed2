// Colours the words of a translation by their probabilities, and tells how good it seems to be.

import { byId } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { places } from "./words.js";

export function beginQuality(changed) {
  byId("show-quality").addEventListener("change", changed);
}

// isShown: tells whether the translation is still the one that is shown.
export async function showQuality(translation, isShown) {
  clearQuality();
  if (!byId("show-quality").checked) return;
  try {
    const { score, sentences } = await translation.quality();
    if (!isShown() || !byId("show-quality").checked) return;
    colour(translation, sentences);
    byId("words-help").textContent = score === null
      ? formatMessage("translate.words.help") : formatMessage("translate.quality.score", { score: formatPercent(score) });
  } catch (error) {
    if (isShown()) byId("words-help").textContent = error.message;
  }
}

export function clearQuality() {
  byId("words-help").textContent = formatMessage("translate.words.help");
  for (const word of wordsShown()) word.style.removeProperty("--surprise");
}

// A word that was copied has no probability, and no colour.
function colour(translation, sentences) {
  const probabilities = sentences.flatMap((sentence) => sentence.word_probabilities);
  const wordPlaces = places(sentences.flatMap((sentence) => sentence.words), translation.text);
  for (const word of wordsShown()) {
    const from = translation.startOf(Number(word.dataset.sentence));
    const [start, end] = [from + Number(word.dataset.start), from + Number(word.dataset.end)];
    const wordProbabilities = probabilities.filter((value, number) => value !== null && wordPlaces[number]?.[0] < end && start < wordPlaces[number]?.[1]);
    if (wordProbabilities.length) word.style.setProperty("--surprise", (1 - Math.min(...wordProbabilities)).toFixed(3));
  }
}

const wordsShown = () => byId("translation").querySelectorAll(".word");
