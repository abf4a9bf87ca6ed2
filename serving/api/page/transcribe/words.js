// Shows the segments of a transcript, and its words, which light up while they are played.

import { byId, element, withArrows } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { keepAtEnd, scrollTo } from "../common/scrolling.js";
import { places } from "../translate/words.js";
import { formatClock } from "./times.js";

let words = []; // that are shown
let spoken = -1; // the number of the word that is lit up

// point: is called with the word that is pointed at, or gets the focus. play: with the seconds at which
// a word or a segment that is clicked begins.
export function beginWords({ point, play }) {
  const box = byId("transcript");
  withArrows(box, ".word");
  for (const name of ["mouseover", "focusin"]) {
    box.addEventListener(name, ({ target }) => { if (target.matches(".word")) point(words[target.dataset.number]); });
  }
  box.addEventListener("click", ({ target }) => {
    const start = target.closest("[data-start]")?.dataset.start;
    if (start) play(Number(start));
  });
  box.addEventListener("keydown", (event) => {
    if (!event.target.matches(".word") || (event.key !== "Enter" && event.key !== " ")) return;
    event.preventDefault();
    play(Number(event.target.dataset.start));
  });
  byId("show-probabilities").addEventListener("change", showProbabilities);
  showProbabilities();
}

const showProbabilities = () => byId("transcript").classList.toggle("uncoloured", !byId("show-probabilities").checked);

export function clearWords() {
  words = [];
  spoken = -1;
  byId("transcript").replaceChildren();
}

export function addSegment({ start, text, words: segmentWords = [] }) {
  const clock = formatClock(start);
  const time = element("button", { type: "button", className: "quiet time", textContent: clock });
  time.setAttribute("aria-label", formatMessage("transcribe.play-from", { time: clock }));
  time.dataset.start = start;
  const written = element("span", { dir: "auto" }, ...partsOf(text.trim(), segmentWords));
  const box = byId("transcript");
  keepAtEnd(box, () => box.append(element("p", { className: "segment" }, time, written)));
}

// Returns the text with elements in the places of its words.
function partsOf(text, segmentWords) {
  const parts = [];
  let end = 0;
  places(segmentWords.map(({ word }) => word.trim()), text).forEach((place, number) => {
    if (!place) return;
    parts.push(text.slice(end, place[0]), wordElement(text.slice(...place), segmentWords[number]));
    [, end] = place;
  });
  return [...parts, text.slice(end)].filter(Boolean);
}

function wordElement(textContent, word) {
  const span = element("span", { className: "word", textContent, tabIndex: words.length ? -1 : 0 });
  span.setAttribute("role", "button");
  Object.assign(span.dataset, { number: words.length, start: word.start });
  if (word.probability !== undefined) span.style.setProperty("--surprise", (1 - word.probability).toFixed(3));
  words.push(word);
  return span;
}

const elementOf = (number) => byId("transcript").querySelector(`[data-number="${number}"]`);

// Lights up a word; none if it is null.
export function lightUp(word) {
  const number = word ? words.indexOf(word) : -1;
  if (number === spoken) return;
  elementOf(spoken)?.classList.remove("spoken");
  spoken = number;
  const lit = elementOf(spoken);
  if (!lit) return;
  lit.classList.add("spoken");
  scrollTo(byId("transcript"), lit);
}
