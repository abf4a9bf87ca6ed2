// Chooses the language of the interface, and loads its messages. A further language needs its file in
// `messages/` and its line here.

import { byId, element } from "./elements.js";
import { fillMessages, setMessages } from "./messages.js";

const KEY = "attendant-language";
const LANGUAGES = { en: "English", de: "Deutsch", es: "Español", fr: "Français", pt: "Português" };
const DEFAULT = "en";

// Takes the language that the user has chosen, or the first of the browser's languages that there is.
export async function loadLanguage() {
  const wanted = [localStorage.getItem(KEY), ...navigator.languages.map((tag) => tag.split("-")[0])];
  const language = wanted.find((code) => code in LANGUAGES) ?? DEFAULT;
  setMessages(language, await (await fetch(`page/messages/${language}.json`)).json());
  document.documentElement.lang = language;
  fillMessages(document);
  offerLanguages(language);
  for (const place of document.body.children) place.hidden = false; // what appears at once does not move
}

function offerLanguages(chosen) {
  const select = byId("language");
  select.replaceChildren(...Object.entries(LANGUAGES).map(([value, textContent]) => element("option", { value, lang: value, textContent })));
  select.value = chosen;
  select.addEventListener("change", () => {
    localStorage.setItem(KEY, select.value);
    location.reload();
  });
}
