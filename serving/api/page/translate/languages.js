// Offers languages and models to translate with.

import { byId, fillSelect } from "../common/elements.js";
import { formatMessage, interfaceLanguage, languageName, languageTitle } from "../common/messages.js";
import { describeTraining, isGeneral, modelTitle } from "../common/models.js";
import { get, showingErrors } from "../common/server.js";

const AUTO = "auto";

let languages = [];
let translators = [];
let limit = Infinity;

// Of one request, as the server says.
export const mostCharacters = () => limit;

// changed: is called when somebody has chosen otherwise.
export function beginLanguages(changed) {
  byId("source").addEventListener("change", () => { offerTargets(); changed(); });
  byId("target").addEventListener("change", () => { offerTranslators(); changed(); });
  byId("translator").addEventListener("change", () => { showModel(); changed(); });
}

export async function offerLanguages(settings, models) {
  const failed = byId("translate-error");
  languages = (await showingErrors(failed, () => get("languages"))) ?? [];
  if (!languages.length) failed.textContent ||= formatMessage("translate.no-model");
  translators = models.filter((model) => model.task === "translate");
  const names = languages.map(({ code }) => [code, languageTitle(code)]).sort(byName);
  fillSelect(byId("source"), [[AUTO, formatMessage("translate.source.detect")], ...names]);
  offerTargets(byId("target").value || firstTarget());
  limit = settings?.charLimit > 0 ? settings.charLimit : Infinity;
  byId("formats").textContent = settings?.supportedFilesFormat.join(" ") ?? "";
  byId("file").accept = settings?.supportedFilesFormat.join(",") ?? "";
}

const byName = ([, one], [, other]) => one.localeCompare(other);

// The first model is the best one, but one for general text comes before those of a domain.
const firstModel = () => translators.find(isGeneral) ?? translators[0];

function firstTarget() {
  const targets = firstModel()?.target_languages ?? [];
  return targets.includes(interfaceLanguage()) && targets.length > 1 ? interfaceLanguage() : targets[0];
}

function offerTargets(first = byId("target").value) {
  const source = byId("source").value;
  byId("text").lang = source === AUTO ? "" : source;
  const from = languages.filter(({ code }) => source === AUTO || code === source);
  const codes = [...new Set(from.flatMap(({ targets }) => targets))];
  fillSelect(byId("target"), codes.map((code) => [code, languageTitle(code)]).sort(byName));
  if (codes.includes(first)) byId("target").value = first;
  offerTranslators();
}

// Returns the models that translate between the chosen languages.
function fittingTranslators() {
  const { source, target } = chosenLanguages();
  return translators.filter(({ source_languages: from, target_languages: into }) => (source === AUTO || from.includes(source)) && into.includes(target));
}

function offerTranslators() {
  const options = fittingTranslators().map((model) => [model.id, modelTitle(model)]);
  fillSelect(byId("translator"), [["", formatMessage("translate.any-model")], ...options]);
  showModel();
  showSwap();
}

// Says of which texts the model was made, where no model for general text is chosen or could be.
function showModel() {
  const fitting = fittingTranslators();
  const model = fitting.find(({ id }) => id === byId("translator").value) ?? fitting.find(isGeneral) ?? fitting[0];
  const { source, target } = chosenLanguages();
  byId("model-note").textContent = !model || isGeneral(model) ? "" : formatMessage("translate.model.note", {
    source: languageTitle(source === AUTO ? model.source_languages[0] : source), target: languageName(target), description: describeTraining(model),
  });
}

const pairName = (source, target) => formatMessage("translate.pair", { source: languageName(source), target: languageName(target) });

const chosenLanguages = () => ({ source: byId("source").value, target: byId("target").value });

export function chosen() {
  const model = byId("translator").value;
  return { ...chosenLanguages(), ...(model && { model }) };
}

// Returns the language of texts to try, and whether a model for general text translates them; null without one.
export function exampleKind() {
  const fitting = fittingTranslators();
  const model = fitting.find(isGeneral) ?? fitting[0];
  const { source } = chosenLanguages();
  return model ? { language: source === AUTO ? model.source_languages[0] : source, isGeneral: isGeneral(model) } : null;
}

// Chooses languages, and returns why they cannot be chosen, if so: they stay as they are then.
export function choose({ source, target }) {
  const isOffered = source === AUTO
    ? languages.some(({ targets }) => targets.includes(target))
    : languages.find(({ code }) => code === source)?.targets.includes(target);
  if (!isOffered) {
    const known = source === AUTO ? formatMessage("translate.not-into", { target: languageName(target) })
      : formatMessage("translate.not-served", { languages: pairName(source, target) });
    return known;
  }
  byId("source").value = source;
  offerTargets(target);
  return "";
}

// Offers to swap where there is a way back; of an unknown source, where there is any.
function showSwap() {
  const { source, target } = chosenLanguages();
  const back = languages.find(({ code }) => code === target)?.targets ?? [];
  const isPossible = source === AUTO ? back.length > 0 : back.includes(source);
  byId("swap").disabled = !isPossible;
  byId("swap").title = isPossible ? formatMessage("translate.swap") : whyNoSwap(source, target);
}

function whyNoSwap(source, target) {
  if (!target) return "";
  if (source === AUTO) return formatMessage("translate.not-from", { source: languageName(target) });
  return formatMessage("translate.not-served", { languages: pairName(target, source) });
}

// detected: the language of the text, where its source is not chosen.
export function swap(detected) {
  const { source, target } = chosenLanguages();
  byId("source").value = target;
  offerTargets(source === AUTO ? detected : source);
}
