// Translates while somebody types.

import { whenBack } from "../common/connection.js";
import { copied } from "../common/clipboard.js";
import { byId } from "../common/elements.js";
import { History } from "../common/history.js";
import { formatMessage, formatPercent, languageName, languageTitle } from "../common/messages.js";
import { stream, showingErrors, Unreachable } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { closeAlternatives } from "./alternatives.js";
import { beginDocuments } from "./documents.js";
import { offerExamples } from "./examples.js";
import { beginLanguages, choose, chosen, mostCharacters, offerLanguages, swap } from "./languages.js";
import { clearMarks } from "./marks.js";
import { readPermalink, showPermalink } from "./permalink.js";
import { beginWords, hideWords, shownText, showWords } from "./pointing.js";
import { hideSentence } from "./sentence.js";
import { glossaryOf } from "./words.js";

const PAUSE_MILLISECONDS = 300;

let waiting = null;
let running = new AbortController();
let wasUnreachable = false;
let detected = ""; // the language of the text that is translated
let history = null;

export function beginTranslating() {
  for (const id of ["text", "glossary"]) byId(id).addEventListener("input", soon);
  byId("text").addEventListener("input", showCount);
  byId("text").addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
  byId("clear-text").addEventListener("click", () => setText(""));
  byId("swap").addEventListener("click", () => { const text = shownText(); swap(detected); showExamples(); setText(text); });
  byId("stop-translating").addEventListener("click", stop);
  byId("copy").addEventListener("click", () => copied(byId("copy"), shownText(), byId("translation")));
  beginLanguages(() => { showExamples(); soon(); });
  beginWords();
  beginDocuments(chosen);
  history = new History("translate", (entry) => open(entry));
  offerSnippet(byId("translate"), formatMessage("translate.snippet.text"), () => ({ path: "translate", body: request() }), byId("translate-snippets"));
  offerSnippet(byId("translate"), formatMessage("translate.snippet.document"), () => ({
    path: "translate_file", form: { file: "@report.docx", source: chosen().source, target: chosen().target },
  }), byId("translate-snippets"));
  whenBack(() => { if (wasUnreachable) soon(); });
  addEventListener("hashchange", openPermalink);
}

// Offers what the server translates; the page's address says what is translated first.
export async function offerTranslations(settings, models) {
  const isFirst = !byId("target").value;
  await offerLanguages(settings, models);
  showExamples();
  if (isFirst) openPermalink();
}

const showExamples = () => offerExamples(setText);

function openPermalink() {
  const link = readPermalink();
  if (link) open(link);
}

// Shows the address of what is translated now.
export function showTranslationAddress() {
  const { source, target } = chosen();
  if (target) showPermalink({ source, target, text: byId("text").value });
}

// entry: {source, target, text}.
function open(entry) {
  const failure = choose(entry);
  showExamples();
  setText(entry.text);
  if (!failure) return;
  stop();
  showNothing();
  byId("translate-error").textContent = failure;
}

function setText(text) {
  byId("text").value = text;
  byId("text").focus();
  clearMarks();
  showCount();
  soon();
}

// Counts code points, as the server does.
function showCount() {
  const count = [...byId("text").value].length;
  const limit = mostCharacters();
  const shown = count > limit / 2
    ? formatMessage("translate.characters.limit", { characters: count, limit }) : formatMessage("translate.characters", { count });
  byId("count").textContent = count ? shown : "";
}

const request = () => ({ q: byId("text").value, ...chosen(), ...terms() });

// The translation that is shown is that of another text or language from now on.
function soon() {
  clearTimeout(waiting);
  hideWords();
  closeAlternatives(false);
  byId("translated").classList.add("outdated");
  waiting = setTimeout(translate, PAUSE_MILLISECONDS);
}

function stop() {
  clearTimeout(waiting);
  running.abort();
  setBusy(false);
  if (byId("translated").classList.contains("outdated")) showNothing();
}

const setBusy = (isBusy) => byId("translation").setAttribute("aria-busy", isBusy);

async function translate() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  wasUnreachable = false;
  showTranslationAddress();
  await showingErrors(byId("translate-error"), async () => {
    if (!byId("text").value.trim()) return showNothing();
    return translateText(signal);
  });
  if (!signal.aborted) setBusy(false);
}

// Nothing of another text's translation stays beside an error.
async function translateText(signal) {
  try {
    await follow(request(), signal);
  } catch (error) {
    if (error.name !== "AbortError") showNothing();
    wasUnreachable = error instanceof Unreachable;
    throw error;
  }
}

function terms() {
  const glossary = glossaryOf(byId("glossary").value);
  return Object.keys(glossary).length ? { glossary } : {};
}

function showNothing() {
  hideWords();
  hideSentence();
  byId("translated").classList.remove("outdated");
  byId("translation").replaceChildren();
  byId("detected").textContent = "";
}

// Shows what is certain as it comes; its words can be worked on once it is whole.
async function follow(request, signal) {
  const box = byId("translation");
  const sentences = [];
  setBusy(true);
  for await (const event of stream("translate", request, signal)) {
    if (signal.aborted) return;
    byId("translated").classList.remove("outdated");
    box.lang = request.target;
    if (event.translatedText === undefined) {
      sentences[event.sentence] = (sentences[event.sentence] ?? "") + event.delta;
      box.textContent = sentences.join("");
    } else {
      finish(request, event, sentences);
    }
  }
}

function finish(request, answer, sentences) {
  detected = answer.detectedLanguage?.language ?? request.source;
  const whole = sentences.join("") === answer.translatedText ? sentences : [answer.translatedText];
  byId("detected").textContent = described(answer);
  byId("translate-status").textContent = answer.translatedText;
  showWords(request, detected, whole);
  history.add({ text: request.q, source: request.source, target: request.target });
}

function described({ detectedLanguage, pivot }) {
  const detection = detectedLanguage && formatMessage("translate.detected", {
    language: languageTitle(detectedLanguage.language), certainty: formatPercent(detectedLanguage.confidence / 100),
  });
  return [detection, pivot && formatMessage("translate.pivot", { language: languageName(pivot) })].filter(Boolean).join("; ");
}
