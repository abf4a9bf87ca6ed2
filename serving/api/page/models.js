// Shows the cards of the models.

import { byId, element } from "./elements.js";
import { get, tellingErrors } from "./server.js";

export async function showModels() {
  const listed = await tellingErrors(byId("models-error"), () => get("v1/models"));
  const models = listed?.data ?? [];
  byId("cards").replaceChildren(...models.map(card));
  return models;
}

function card(model) {
  const rows = Object.entries(described(model)).filter(([, value]) => value);
  const list = element("dl");
  for (const [name, value] of rows) {
    list.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
  }
  return element("article", { className: "card" }, element("h2", { textContent: model.id }), list);
}

function described(model) {
  return {
    "Does": model.task === "translate" ? "translates" : "writes",
    "From": model.source_languages.join(", "),
    "Into": model.target_languages.join(", "),
    "Architecture": model.architecture,
    "Precision": model.precision,
    "Tokens at most": `${model.max_model_len}`,
    "Tokens of source": model.max_source_tokens && `${model.max_source_tokens}`,
    "Chats": model.task === "generate" && (model.has_chat_template ? "yes" : "no"),
    "Recommended": Object.entries(model.generation).map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(", "),
    "Runs as": model.plan && plan(model.plan),
    "Fingerprint": model.system_fingerprint,
  };
}

function plan({ engines, threads, chosen }) {
  const counted = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  return `${counted(engines, "engine")} of ${counted(threads, "thread")} (${chosen})`;
}
