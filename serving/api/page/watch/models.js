// Shows the models, with their cards.

import { byId, element } from "../common/elements.js";
import { get, showingErrors } from "../common/server.js";
import { elementsOf } from "../common/markdown.js";
import { offerSnippet } from "../common/snippets.js";

const names = new Intl.DisplayNames("en", { type: "language" });

export function beginModels() {
  offerSnippet(byId("models"), "List the models from a program", () => ({ path: "v1/models" }));
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
    list.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
  }
  const title = element("h2", { textContent: model.id });
  const does = element("p", { className: "note", textContent: purpose(model) });
  return element("article", { className: "card" }, title, does, list, card(model.id));
}

function purpose({ task, picture, source_languages: from, target_languages: into }) {
  if (task === "translate") return `Translates ${named(from)} into ${named(into)}`;
  if (task === "embed") return "Makes vectors of texts, to compare them: /v1/embeddings, /v1/rerank";
  if (task === "classify-tokens") return "Labels parts of texts, such as names: /v1/classify";
  if (task === "fill-mask") return "Guesses masked words: /v1/fill-mask";
  if (task === "classify") return "Labels texts, or pairs of them: /classify, /v1/rerank";
  if (picture) return "Writes about pictures";
  return into.length ? `Writes ${named(into)}` : "Writes";
}

function named(codes) {
  const languageNames = codes.slice(0, 4).map((code) => {
    try {
      return names.of(code.replace("_", "-"));
    } catch { // a code of a model's own
      return code;
    }
  });
  return languageNames.join(", ") + (codes.length > languageNames.length ? ` and ${codes.length - languageNames.length} more` : "");
}

function described(model) {
  return {
    "Architecture": model.architecture,
    "Precision": model.precision,
    "Tokens at most": `${model.max_model_len}`,
    "Tokens of source": model.max_source_tokens && `${model.max_source_tokens}`,
    "Chats": model.task === "generate" && !model.picture && (model.has_chat_template ? "yes" : "no"),
    "Recommended": Object.entries(model.generation).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", "),
    "Runs as": model.plan && plan(model.plan),
    "Fingerprint": model.system_fingerprint,
  };
}

function plan({ engines, threads, chosen }) {
  const counted = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  return `${counted(engines, "engine")} of ${counted(threads, "thread")} (${chosen})`;
}

// What its makers say; it is read when somebody opens it.
function card(id) {
  const text = element("div", { className: "about" });
  const summary = element("summary", { textContent: "Model card" });
  summary.setAttribute("aria-label", `Model card of ${id}`);
  const details = element("details", {}, summary, text);
  details.addEventListener("toggle", async () => {
    details.parentElement.classList.toggle("wide", details.open);
    if (!details.open || text.hasChildNodes()) return;
    const model = await showingErrors(text, () => get(`v1/models/${id.split("/").map(encodeURIComponent).join("/")}`));
    if (model) text.replaceChildren(...elementsOf(model.card || "Its makers say nothing of it.", 3));
  });
  return details;
}
