// Shows the models, with their cards, and opens the tab to try one.

import { byId, element } from "../common/elements.js";
import { elementsOf } from "../common/markdown.js";
import { formatList, formatMessage, formatNumber, languageName } from "../common/messages.js";
import { get, showingErrors } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { choose } from "../translate/languages.js";

const MOST_LANGUAGES = 4; // that are named of a model
const MOST_TESTS = 3; // whose scores are shown
const MEGABYTE = 1e6;
const ONE_DIGIT = { maximumFractionDigits: 1 };

// Of each task the tab to try it in: its menu of models, and where one goes on.
const TRIALS = {
  translate: { tab: "translate", menu: "translator", start: "text" },
  generate: { tab: "write", menu: "writer", start: "prompt" },
  embed: { tab: "compare", menu: "comparer", start: "query" },
  classify: { tab: "compare", menu: "comparer", start: "query" },
  transcribe: { tab: "transcribe", menu: "transcriber", start: "recording" },
  picture: { tab: "picture", menu: "picture-reader", start: "picture-file" },
};

export function beginModels() {
  offerSnippet(byId("models"), formatMessage("models.snippet"), () => ({ path: "v1/models" }));
}

export async function showModels() {
  const listed = await showingErrors(byId("models-error"), () => get("v1/models"));
  const models = listed?.data ?? [];
  byId("cards").replaceChildren(...models.map(modelCard));
  return models;
}

function modelCard(model) {
  const head = element("div", { className: "card-head" }, element("h2", { textContent: model.id }), ...trialButton(model));
  const does = element("p", { className: "note", textContent: purpose(model) });
  const details = element("details", {}, element("summary", { textContent: formatMessage("models.details") }), listOf(technicalFacts(model)));
  return element("article", { className: "card" }, head, does, listOf(facts(model)), details, card(model.id));
}

function trialButton(model) {
  const trial = TRIALS[model.picture ? "picture" : model.task];
  if (!trial) return []; // no tab does it
  const button = element("button", { type: "button", textContent: formatMessage("models.try") });
  button.setAttribute("aria-label", formatMessage("models.try.label", { model: model.id }));
  button.addEventListener("click", () => tryModel(model, trial));
  return [button];
}

function tryModel({ id, source_languages: from, target_languages: into }, { tab, menu, start }) {
  byId(`tab-${tab}`).click();
  if (tab === "translate") choose({ source: from.length === 1 ? from[0] : "auto", target: into[0] });
  byId(menu).value = id;
  byId(menu).dispatchEvent(new Event("change", { bubbles: true }));
  byId(start).focus();
}

function listOf(named) {
  const list = element("dl");
  for (const [name, value] of Object.entries(named)) {
    if (value) list.append(element("dt", { textContent: formatMessage(name) }), element("dd", {}, value));
  }
  return list;
}

function purpose({ task, picture, source_languages: from, target_languages: into }) {
  if (task === "translate") return formatMessage("models.translates", { sources: named(from), targets: named(into) });
  if (task === "transcribe") return formatMessage("models.transcribes", { languages: named(from) });
  if (task === "embed") return formatMessage("models.embeds");
  if (task === "classify-tokens") return formatMessage("models.classifies-tokens");
  if (task === "fill-mask") return formatMessage("models.fills-mask");
  if (task === "classify") return formatMessage("models.classifies");
  if (picture) return formatMessage("models.captions");
  return into.length ? formatMessage("models.writes-languages", { languages: named(into) }) : formatMessage("models.writes");
}

function named(codes) {
  const shown = codes.slice(0, MOST_LANGUAGES).map(languageName);
  if (codes.length <= shown.length) return formatList(shown);
  return formatMessage("models.more-languages", { languages: shown.join(", "), count: codes.length - shown.length });
}

// What people choose by.
function facts(model) {
  return {
    "models.domain": model.domain,
    "models.quality": quality(model.quality),
    "models.size": model.size_bytes && formatMessage("models.megabytes", { size: formatSize(model.size_bytes), precision: model.precision }),
    "models.licence": model.licence,
    "models.origin": model.origin?.startsWith("attendant ") ? element("code", { textContent: model.origin }) : model.origin,
  };
}

function formatSize(bytes) {
  const megabytes = bytes / MEGABYTE;
  return formatNumber(megabytes, { maximumSignificantDigits: megabytes < 100 ? 2 : 3 });
}

// Tests have names in the figures of translators, and one text of its own measures a language model.
function quality({ scores = [], ...figures }) {
  const tests = scores.slice(0, MOST_TESTS).map(({ origin, chrf }) =>
    formatMessage("models.quality.test", { test: origin, score: formatNumber(chrf, ONE_DIGIT) }));
  if (tests.length) return formatMessage("models.quality.chrf", { tests: formatList(tests) });
  return ["bits_per_byte", "perplexity", "accuracy"]
    .filter((name) => name in figures)
    .map((name) => formatMessage(`models.quality.${name}`, { value: formatNumber(figures[name], { maximumSignificantDigits: 3 }) }))
    .join(", ");
}

function technicalFacts(model) {
  return {
    "models.architecture": model.architecture,
    "models.max-tokens": formatNumber(model.max_model_len),
    "models.max-source-tokens": model.max_source_tokens && formatNumber(model.max_source_tokens),
    "models.chats": model.task === "generate" && !model.picture && formatMessage(model.has_chat_template ? "models.yes" : "models.no"),
    "models.recommended": Object.entries(model.generation).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", "),
    "models.runs-as": model.plan && plan(model.plan),
    "models.fingerprint": model.system_fingerprint,
  };
}

function plan({ engines, threads, chosen }) {
  return formatMessage("models.plan", {
    engines: formatMessage("models.engines", { count: engines }), threads: formatMessage("models.threads", { count: threads }), chosen,
  });
}

// What its makers say; it is read when somebody opens it. A long one scrolls, until somebody wants it whole.
function card(id) {
  const label = formatMessage("models.card.label", { model: id });
  const text = element("div", { className: "about", tabIndex: 0, role: "region", ariaLabel: label });
  const whole = element("button", { type: "button", className: "quiet", hidden: true, textContent: formatMessage("models.card.whole") });
  const summary = element("summary", { textContent: formatMessage("models.card"), ariaLabel: label });
  const details = element("details", {}, summary, text, whole);
  details.addEventListener("toggle", async () => {
    details.parentElement.classList.toggle("wide", details.open);
    if (!details.open || text.hasChildNodes()) return;
    const model = await showingErrors(text, () => get(`v1/models/${id.split("/").map(encodeURIComponent).join("/")}`));
    if (!model) return;
    text.replaceChildren(...elementsOf(model.card || formatMessage("models.card.empty"), 3));
    whole.hidden = text.scrollHeight <= text.clientHeight;
  });
  whole.addEventListener("click", () => {
    text.classList.add("whole");
    whole.hidden = true;
    text.focus();
  });
  return details;
}
