// Translates a transcript, segment by segment, with the translators of the server.

import { byId, element, fillSelect } from "../common/elements.js";
import { formatMessage, languageTitle } from "../common/messages.js";
import { get, post, showingErrors } from "../common/server.js";
import { formatClock } from "./times.js";
import { offerDownloads } from "./subtitles.js";

const SEGMENTS_AT_ONCE = 50; // of a request, so that a long transcript is shown as it is translated

let languages = []; // {code, targets} that the server translates
let translating = new AbortController();
let transcript = null; // {name, language, segments} that can be translated
let translated = []; // segments with the texts of their translations

export function beginOnward() {
  byId("onward-translate").addEventListener("click", translate);
  byId("onward-target").addEventListener("change", clear);
  offerDownloads(byId("onward-downloads"), () => ({
    name: `${transcript.name}.${byId("onward-target").value}`,
    segments: translated,
    facts: { language: byId("onward-target").value },
  }));
}

export async function offerOnward(models) {
  const hasTranslator = models.some(({ task }) => task === "translate");
  languages = hasTranslator ? await get("languages").catch(() => []) : []; // its own tab tells the error
  if (transcript) show();
}

// Offers to translate a transcript, {name, language, segments}; nothing if it is null.
export function offerTranslation(newTranscript) {
  transcript = newTranscript;
  clear();
  show();
}

function show() {
  const { targets = [] } = languages.find(({ code }) => code === transcript?.language) ?? {};
  const others = targets.filter((code) => code !== transcript.language);
  fillSelect(byId("onward-target"), others.map((code) => [code, languageTitle(code)]));
  byId("onward").hidden = !others.length || !transcript.segments.length;
}

function clear() {
  translating.abort();
  translated = [];
  byId("onward-translation").hidden = true;
  byId("onward-downloads").classList.add("invisible");
}

async function translate() {
  clear();
  translating = new AbortController();
  const { signal } = translating;
  const target = byId("onward-target").value;
  const lines = element("tbody");
  byId("onward-translation").replaceChildren(tableOf(lines));
  byId("onward-translation").hidden = false;
  byId("onward-translate").disabled = true;
  await showingErrors(byId("onward-error"), async () => {
    for (let first = 0; first < transcript.segments.length; first += SEGMENTS_AT_ONCE) {
      const segments = transcript.segments.slice(first, first + SEGMENTS_AT_ONCE);
      const body = { q: segments.map(({ text }) => text.trim()), source: transcript.language, target };
      const { translatedText: texts } = await post("translate", body, signal);
      translated.push(...segments.map(({ start, end }, number) => ({ start, end, text: texts[number] })));
      lines.append(...segments.map((segment, number) => lineOf(segment, texts[number], target)));
    }
    byId("onward-downloads").classList.remove("invisible");
  });
  byId("onward-translate").disabled = false;
}

function tableOf(lines) {
  const heading = (key) => element("th", { scope: "col", textContent: formatMessage(key) });
  const names = ["transcribe.time", "transcribe.transcript", "translate.translation"].map(heading);
  return element("table", {}, element("thead", {}, element("tr", {}, ...names)), lines);
}

const lineOf = ({ start, text }, translation, target) => element("tr", {},
  element("th", { scope: "row", textContent: formatClock(start) }),
  element("td", { dir: "auto", lang: transcript.language, textContent: text.trim() }),
  element("td", { dir: "auto", lang: target, textContent: translation }));
