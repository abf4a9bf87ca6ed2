// Offers other ways to go on from a word of the translation.

import { byId, element, withArrows } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";

let openWord = null; // the word that they are for
let asking = new AbortController();

export function beginAlternatives() {
  const menu = byId("alternatives");
  withArrows(menu, "button");
  for (const place of [menu, byId("translation")]) {
    place.addEventListener("keydown", (event) => {
      if (event.key === "Escape") closeAlternatives(true);
    });
  }
  document.addEventListener("pointerdown", (event) => {
    if (!menu.contains(event.target)) closeAlternatives(false);
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) closeAlternatives(false);
  });
}

// Opens beneath the word at once; the ways come later. Returns the signal that it was closed.
export function openAlternatives(word) {
  closeAlternatives(false);
  openWord = word;
  asking = new AbortController();
  word.setAttribute("aria-expanded", "true");
  const menu = byId("alternatives");
  const box = menu.parentElement.getBoundingClientRect();
  menu.style.top = `${word.getBoundingClientRect().bottom - box.top + 4}px`;
  menu.replaceChildren(element("p", { className: "note", textContent: formatMessage("translate.alternatives.computing") }));
  menu.hidden = false;
  return asking.signal;
}

// ways: {text, word, rest} of each: the whole sentence, and how it goes on from the word.
export function offer(word, ways, choose) {
  if (openWord !== word) return;
  const none = element("p", { className: "note", textContent: formatMessage("translate.alternatives.none") });
  const buttons = ways.map((way, number) => {
    const button = element("button", { type: "button", tabIndex: number ? -1 : 0 }, element("b", { textContent: way.word }), way.rest);
    button.setAttribute("role", "menuitem");
    button.addEventListener("click", () => { closeAlternatives(false); choose(way.text); });
    return button;
  });
  byId("alternatives").replaceChildren(...(buttons.length ? buttons : [none]));
  buttons[0]?.focus();
}

export function closeAlternatives(goesBack) {
  asking.abort();
  byId("alternatives").hidden = true;
  openWord?.setAttribute("aria-expanded", "false");
  if (goesBack) openWord?.focus();
  openWord = null;
}
