// Offers all parameters with an effect that the server's own description of its requests has.

import { byId, element } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { get, Refused } from "../common/server.js";

const SCHEMAS = { completion: "CompletionBody", chat: "ChatBody" };
const FIRST = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop"];
// Set by what else is on the page, or by translators only.
const OWN = new Set([
  "model", "messages", "prompt", "stream", "stream_options", "logprobs", "top_logprobs", "return_attention", "source_language", "target_language",
]);

let fields = []; // of each {name, schema, modes, input, place}

export async function offerParameters() {
  const described = await get("openapi.json").catch(() => null);
  if (!described || fields.length) return;
  fields = fieldsOf(described.components.schemas).map(createInput);
  const byPlace = (isFirst) => fields.filter(({ name }) => FIRST.includes(name) === isFirst);
  const first = byPlace(true).sort((one, other) => FIRST.indexOf(one.name) - FIRST.indexOf(other.name));
  byId("parameters").append(...first.map(({ place }) => place));
  byId("more-parameters").append(...byPlace(false).map(({ place }) => place));
}

function fieldsOf(schemas) {
  const byName = new Map();
  for (const [mode, schemaName] of Object.entries(SCHEMAS)) {
    for (const [name, schema] of Object.entries(schemas[schemaName].properties)) {
      if (OWN.has(name) || schema.description.includes("Without effect")) continue;
      if (!byName.has(name)) byName.set(name, { name, schema, modes: [] });
      byName.get(name).modes.push(mode);
    }
  }
  return [...byName.values()];
}

function createInput(field) {
  const { name, schema } = field;
  const input = inputFor(name, schema);
  const label = element("label", { htmlFor: name, textContent: name });
  const help = element("small", { id: `${name}-help`, textContent: schema.description.replaceAll("`", "") });
  input.setAttribute("aria-describedby", help.id);
  return { ...field, input, place: element("div", {}, label, input, help) };
}

const typesOf = (schema) => [schema.type, ...(schema.anyOf ?? []).map(({ type }) => type)].filter(Boolean);

const constantsOf = (schema) => (schema.anyOf ?? []).filter((type) => "const" in type).map((type) => type.const);

function inputFor(id, schema) {
  const types = typesOf(schema);
  const values = schema.enum ?? (types.includes("boolean") ? [true, false, ...constantsOf(schema)] : null);
  if (values) {
    const options = [["", formatMessage("write.parameters.default", { value: `${schema.default}` })], ...values.map((value) => [JSON.stringify(value), `${value}`])];
    return element("select", { id }, ...options.map(([value, textContent]) => element("option", { value, textContent })));
  }
  const isNumber = types.some((type) => type === "number" || type === "integer");
  return element("input", { id, autocomplete: "off", spellcheck: false, ...(isNumber ? numeric(schema) : { type: "text" }) });
}

const numeric = ({ minimum, maximum }) => ({ type: "number", step: "any", min: minimum ?? "", max: maximum ?? "" });

// recommended: what the model's makers do, by names of fields. length: of a text that has no end of its own.
export function showParameters(isChat, recommended, length) {
  for (const { name, schema, modes, input, place } of fields) {
    place.hidden = !modes.includes(isChat ? "chat" : "completion");
    input.placeholder = recommended[name] ?? schema.default ?? (input.type === "text" && isJson(schema) ? "JSON" : "");
    if (name === "max_tokens") input.placeholder = isChat ? formatMessage("write.parameters.until-end") : recommended[name] ?? length;
  }
}

const isJson = (schema) => !typesOf(schema).includes("string");

// Returns what was given, for the mode that is shown, and else the length of a text.
export function parameters(isChat, recommended, length) {
  const filled = fields.filter(({ place, input }) => !place.hidden && input.value !== "");
  const most = isChat || recommended.max_tokens ? {} : { max_tokens: length };
  return { ...most, ...Object.fromEntries(filled.map(({ name, schema, input }) => [name, valueOf(name, schema, input)])) };
}

function valueOf(name, schema, input) {
  if (input.type === "number") return input.valueAsNumber;
  if (input.type === "text" && !isJson(schema)) return input.value;
  try {
    return JSON.parse(input.value);
  } catch {
    throw new Refused(formatMessage("write.parameters.no-json", { name, value: input.value }));
  }
}
