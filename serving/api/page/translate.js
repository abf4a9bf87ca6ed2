// Translates while somebody types, and lets them work on the words.

import { beginAlternatives, closeAlternatives, offer, openAlternatives } from "./alternatives.js";
import { clearAttention, showAttention, weightsAt } from "./attention.js";
import { beginDocuments, offerFormats } from "./documents.js";
import { byId, element, fillSelect, withArrows } from "./elements.js";
import { get, post, stream, tellingErrors } from "./server.js";
import { glossaryOf, parts, sentencesOf } from "./words.js";

const PAUSE_MILLISECONDS = 300;
const MOST_ALTERNATIVES = 6;

let languages = [];
let waiting = null;
let running = new AbortController();
// What is shown: its request, the source's language, and of each sentence {source, target, map};
// source and map are null until somebody points at a word.
let shown = { request: null, source: "", sentences: [] };

export function beginTranslating() {
  for (const id of ["text", "glossary"]) byId(id).addEventListener("input", soon);
  for (const id of ["target", "translator"]) byId(id).addEventListener("change", soon);
  byId("source").addEventListener("change", () => { offerTargets(); soon(); });
  beginWords(byId("translation"));
  beginAlternatives();
  beginDocuments(chosen);
}

export async function offerLanguages(settings, models) {
  languages = (await tellingErrors(byId("translate-error"), () => get("languages"))) ?? [];
  const named = languages.map(({ code, name }) => [code, name]);
  fillSelect(byId("source"), [["auto", "Identify the language"], ...named]);
  const translators = models.filter((model) => model.task === "translate");
  fillSelect(byId("translator"), [["", "Any that can"], ...translators.map(({ id }) => [id, id])]);
  offerTargets(settings?.language.target.code);
  offerFormats(settings?.supportedFilesFormat ?? []);
}

function offerTargets(first = byId("target").value) {
  const source = byId("source").value;
  const from = languages.filter(({ code }) => source === "auto" || code === source);
  const codes = [...new Set(from.flatMap(({ targets }) => targets))].sort();
  fillSelect(byId("target"), codes.map((code) => [code, nameOf(code)]));
  if (codes.includes(first)) byId("target").value = first;
}

function nameOf(code) {
  const known = languages.find((each) => each.code === code)?.name;
  try {
    return known ?? new Intl.DisplayNames("en", { type: "language" }).of(code.replace("_", "-"));
  } catch { // a code of a model's own
    return code;
  }
}

function chosen() {
  const model = byId("translator").value;
  return { source: byId("source").value, target: byId("target").value, ...(model && { model }) };
}

function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(translate, PAUSE_MILLISECONDS);
}

async function translate() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  closeAlternatives(false);
  const text = byId("text").value;
  await tellingErrors(byId("translate-error"), async () => {
    if (!text.trim()) return showNothing();
    return follow({ q: text, ...chosen(), ...terms() }, signal);
  });
  if (!signal.aborted) byId("translation").setAttribute("aria-busy", "false");
}

function terms() {
  const glossary = glossaryOf(byId("glossary").value);
  return Object.keys(glossary).length ? { glossary } : {};
}

function showNothing() {
  shown = { request: null, source: "", sentences: [] };
  byId("translation").replaceChildren();
  byId("detected").textContent = "";
  clearAttention();
}

// Shows what is certain as it comes; its words can be worked on once it is whole.
async function follow(request, signal) {
  const box = byId("translation");
  const sentences = [];
  box.setAttribute("aria-busy", "true");
  box.lang = request.target;
  for await (const event of stream("translate", request, signal)) {
    if (signal.aborted) return;
    if (event.translatedText === undefined) {
      sentences[event.sentence] = (sentences[event.sentence] ?? "") + event.delta;
      box.textContent = sentences.join("");
    } else {
      finish(request, event, sentences);
    }
  }
}

function finish(request, answer, sentences) {
  const source = answer.detectedLanguage?.language ?? request.source;
  const whole = sentences.join("") === answer.translatedText ? sentences : [answer.translatedText];
  shown = { request, source, sentences: whole.map((target) => ({ source: null, target, map: null })) };
  if (whole.length === 1) shown.sentences[0].source = request.q;
  byId("detected").textContent = described(answer);
  byId("translate-said").textContent = answer.translatedText;
  clearAttention();
  showWords();
}

function described({ detectedLanguage, pivot }) {
  const found = detectedLanguage && `${nameOf(detectedLanguage.language)}, ${Math.round(detectedLanguage.confidence)} % certain`;
  return [found, pivot && `by two models, through ${nameOf(pivot)}`].filter(Boolean).join("; ");
}

function showWords() {
  const { target } = shown.request;
  const made = shown.sentences.flatMap((sentence, number) =>
    parts(sentence.target, target).map((part) => (part.isWord ? wordOf(part, number) : part.text)));
  byId("translation").replaceChildren(...made);
  const first = byId("translation").querySelector(".word");
  if (first) first.tabIndex = 0;
}

function wordOf({ text, start }, sentence) {
  const word = element("span", { className: "word", textContent: text, tabIndex: -1 });
  word.setAttribute("role", "button");
  word.setAttribute("aria-haspopup", "menu");
  word.setAttribute("aria-expanded", "false");
  Object.assign(word.dataset, { sentence, start, end: start + text.length });
  return word;
}

function beginWords(box) {
  const onWord = (work) => (event) => {
    const word = event.target.closest(".word");
    if (word) work(word, event);
  };
  withArrows(box, ".word");
  for (const name of ["mouseover", "focusin"]) box.addEventListener(name, onWord(attend));
  box.addEventListener("click", onWord(findOthers));
  box.addEventListener("keydown", onWord((word, event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    findOthers(word);
  }));
}

async function attend(word) {
  const sentence = shown.sentences[word.dataset.sentence];
  try {
    const map = await mapOf(sentence);
    if (!word.isConnected || !word.matches(":hover, :focus")) return;
    const weights = weightsAt(map, sentence.target, Number(word.dataset.start), Number(word.dataset.end));
    if (weights) showAttention(word.textContent, map, weights);
    else clearAttention(`${word.textContent}: was taken over from the text`);
  } catch (error) {
    clearAttention(error.message);
  }
}

async function mapOf(sentence) {
  if (!sentence.map && sentence.source && sentence.isChosen) sentence.map = await mapOfChosen(sentence);
  if (!sentence.map) await (shown.reading ??= readMaps(shown));
  return sentence.map;
}

// Asks once for what all sentences of a translation attend to; so their sources are known too.
async function readMaps({ request, source, sentences }) {
  const { attention } = await post("translate", { ...request, source, return_attention: true });
  const sources = sentencesOf(request.q, attention.map((each) => each.source_words));
  if (attention.length !== sentences.length) throw new Error("Which words came of which is not known here.");
  attention.forEach((map, number) => {
    sentences[number].source = sources[number].trim();
    sentences[number].map ??= map;
  });
}

// What somebody has chosen is no longer what the model would say: it is scored as it stands.
async function mapOfChosen({ source: q, target: text }) {
  const { request: { target, model }, source } = shown;
  const { scores: [score] } = await post("score", { q, translations: text.trim(), source, target, ...(model && { model }), return_attention: true });
  return score.attention;
}

async function findOthers(word) {
  const sentence = shown.sentences[word.dataset.sentence];
  openAlternatives(word);
  const failed = byId("translate-error");
  const ways = await tellingErrors(failed, async () => {
    if (!sentence.source) await mapOf(sentence);
    return waysFrom(sentence, Number(word.dataset.start));
  });
  if (failed.textContent || !word.isConnected) return closeAlternatives(false);
  return offer(word, ways, (text) => choose(sentence, text));
}

async function waysFrom({ source: q, target }, start) {
  const target_prefix = target.slice(0, start);
  const { request, source } = shown;
  const answer = await post("translate", {
    ...request, q, source, target_prefix, alternatives: MOST_ALTERNATIVES, alternatives_at_prefix: true,
  });
  const texts = [...new Set([answer.translatedText, ...answer.alternatives])];
  const said = target_prefix.trim();
  return texts
    .filter((text) => spaced(text) !== spaced(target))
    .map((text) => ({ text, shown: said && text.startsWith(said) ? `… ${text.slice(said.length).trim()}` : text }));
}

const spaced = (text) => text.trim().replace(/\s+/g, " ");

function choose(sentence, text) {
  const [before] = sentence.target.match(/^\s*/);
  const [after] = sentence.target.match(/\s*$/);
  Object.assign(sentence, { target: before + text.trim() + after, map: null, isChosen: true });
  byId("translate-said").textContent = text;
  clearAttention();
  showWords();
  byId("translation").focus();
}
