// Marks words of the source in place. A text area has no marks of its own: they lie behind it, in a
// copy of its text that is laid out alike.

import { byId, element } from "../common/elements.js";

const FAINTEST = 0.05; // share of the heaviest word, below which a word is not marked

export function beginMarks() {
  byId("text").addEventListener("scroll", () => { byId("marks").scrollTop = byId("text").scrollTop; });
  byId("text").addEventListener("input", clearMarks);
}

export function clearMarks() {
  byId("marks").replaceChildren();
}

// words: {start, end, weight} of words of the text, in order.
export function showMarks(words) {
  const text = byId("text").value;
  const heaviest = Math.max(...words.map(({ weight }) => weight));
  let place = 0;
  const parts = words.filter(({ weight }) => weight >= FAINTEST * heaviest).flatMap(({ start, end, weight }) => {
    const before = text.slice(place, start);
    place = end;
    const mark = element("mark", { textContent: text.slice(start, end), className: weight === heaviest ? "heaviest" : "" });
    mark.style.setProperty("--weight", (weight / heaviest).toFixed(3));
    return [before, mark];
  });
  byId("marks").replaceChildren(...parts, text.slice(place), "\n"); // a text area shows a last, empty line
  bringIntoSight(byId("marks").querySelector(".heaviest"));
}

function bringIntoSight(mark) {
  const box = byId("text");
  if (mark && (mark.offsetTop < box.scrollTop || mark.offsetTop + mark.offsetHeight > box.scrollTop + box.clientHeight)) {
    box.scrollTop = mark.offsetTop - box.clientHeight / 2;
  }
  byId("marks").scrollTop = box.scrollTop;
}
