// Shows the models, with their cards.

import { byId, element } from "../common/elements.js";
import { formatList, formatMessage, languageName } from "../common/messages.js";
import { get, showingErrors } from "../common/server.js";
import { elementsOf } from "../common/markdown.js";
import { offerSnippet } from "../common/snippets.js";

const MOST_LANGUAGES = 4; // that are named of a model

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
  const rows = Object.entries(described(model)).filter(([, value]) => value);
  const list = element("dl");
  for (const [name, value] of rows) {
    list.append(element("dt", { textContent: formatMessage(name) }), element("dd", { textContent: value }));
  }
  const title = element("h2", { textContent: model.id });
  const does = element("p", { className: "note", textContent: purpose(model) });
  return element("article", { className: "card" }, title, does, list, card(model.id));
}

function purpose({ task, picture, source_languages: from, target_languages: into }) {
  if (task === "translate") return formatMessage("models.translates", { sources: named(from), targets: named(into) });
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

function described(model) {
  return {
    "models.architecture": model.architecture,
    "models.precision": model.precision,
    "models.max-tokens": `${model.max_model_len}`,
    "models.max-source-tokens": model.max_source_tokens && `${model.max_source_tokens}`,
    "models.chats": model.task === "generate" && !model.picture && (model.has_chat_template ? formatMessage("models.yes") : formatMessage("models.no")),
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

// What its makers say; it is read when somebody opens it.
function card(id) {
  const text = element("div", { className: "about" });
  const summary = element("summary", { textContent: formatMessage("models.card") });
  summary.setAttribute("aria-label", formatMessage("models.card.label", { model: id }));
  const details = element("details", {}, summary, text);
  details.addEventListener("toggle", async () => {
    details.parentElement.classList.toggle("wide", details.open);
    if (!details.open || text.hasChildNodes()) return;
    const model = await showingErrors(text, () => get(`v1/models/${id.split("/").map(encodeURIComponent).join("/")}`));
    if (model) text.replaceChildren(...elementsOf(model.card || formatMessage("models.card.empty"), 3));
  });
  return details;
}
