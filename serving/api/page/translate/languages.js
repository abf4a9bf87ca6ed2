// Offers languages and models to translate with.

import { byId, fillSelect } from "../common/elements.js";
import { formatMessage, languageName } from "../common/messages.js";
import { get, showingErrors } from "../common/server.js";

let languages = [];
let limit = Infinity;

// Of one request, as the server says.
export const mostCharacters = () => limit;

// changed: is called when somebody has chosen otherwise.
export function beginLanguages(changed) {
  byId("source").addEventListener("change", () => { offerTargets(); changed(); });
  byId("target").addEventListener("change", () => { showSwap(); changed(); });
  byId("translator").addEventListener("change", changed);
}

export async function offerLanguages(settings, models) {
  const failed = byId("translate-error");
  languages = (await showingErrors(failed, () => get("languages"))) ?? [];
  if (!languages.length) failed.textContent ||= formatMessage("translate.no-model");
  fillSelect(byId("source"), [["auto", formatMessage("translate.source.detect")], ...languages.map(({ code }) => [code, languageName(code)])]);
  const translators = models.filter((model) => model.task === "translate");
  fillSelect(byId("translator"), [["", formatMessage("translate.any-model")], ...translators.map(({ id }) => [id, id])]);
  offerTargets(byId("target").value || settings?.language.target.code);
  limit = settings?.charLimit > 0 ? settings.charLimit : Infinity;
  byId("formats").textContent = settings?.supportedFilesFormat.join(" ") ?? "";
  byId("file").accept = settings?.supportedFilesFormat.join(",") ?? "";
}

function offerTargets(first = byId("target").value) {
  const source = byId("source").value;
  const from = languages.filter(({ code }) => source === "auto" || code === source);
  const codes = [...new Set(from.flatMap(({ targets }) => targets))].sort();
  fillSelect(byId("target"), codes.map((code) => [code, languageName(code)]));
  if (codes.includes(first)) byId("target").value = first;
  showSwap();
}

export function chosen() {
  const model = byId("translator").value;
  return { source: byId("source").value, target: byId("target").value, ...(model && { model }) };
}

// Languages that are not offered any more stay as they are.
export function choose({ source, target }) {
  const offers = (name, value) => [...byId(name).options].some((option) => option.value === value);
  if (offers("source", source)) byId("source").value = source;
  offerTargets(target);
}

// Offers to swap where there is a way back; of an unknown source, where there is any.
function showSwap() {
  const back = languages.find(({ code }) => code === byId("target").value)?.targets ?? [];
  const source = byId("source").value;
  byId("swap").disabled = source === "auto" ? !back.length : !back.includes(source);
  byId("swap").classList.toggle("invisible", byId("swap").disabled);
}

// detected: the language of the text, where its source is not chosen.
export function swap(detected) {
  const { source, target } = chosen();
  byId("source").value = target;
  offerTargets(source === "auto" ? detected : source);
}
