// Formats the messages of the interface, numbers and languages in the language that is shown.

const POINTER = matchMedia("(pointer: coarse)").matches ? "coarse" : "fine"; // a finger, or a mouse

let language = "en";
let catalogue = {};
let plural = null;
let languageNames = null;

// newCatalogue: messages by key, as in `messages/en.json`.
export function setMessages(newLanguage, newCatalogue) {
  language = newLanguage;
  catalogue = newCatalogue;
  plural = new Intl.PluralRules(language);
  languageNames = new Intl.DisplayNames(language, { type: "language" });
}

// Returns the message of a key, with each {name} replaced by its value. A message with several forms is
// chosen by `count` among those of Intl.PluralRules, or by the kind of pointer that the device has.
export function formatMessage(key, values = {}) {
  const message = catalogue[key];
  const form = typeof message === "string" ? message : message[formOf(values)] ?? message.other;
  return form.replace(/\{(\w+)\}/g, (_, name) => formatValue(values[name]));
}

const formOf = ({ count }) => (count === undefined ? POINTER : plural.select(count));

const formatValue = (value) => (typeof value === "number" ? formatNumber(value) : value);

export const formatNumber = (number, options = {}) => number.toLocaleString(language, options);

export const interfaceLanguage = () => language;

// share: from 0 to 1.
export const formatPercent = (share, options = {}) => formatNumber(share, { style: "percent", ...options });

export const formatList = (words) => new Intl.ListFormat(language).format(words);

// Returns the name of a language; a code that only a model knows is returned as it is.
export function languageName(code) {
  try {
    return languageNames.of(code.replace("_", "-"));
  } catch {
    return code;
  }
}

// Returns the name of a language as it stands alone or begins a sentence.
export function languageTitle(code) {
  const name = languageName(code);
  return name.charAt(0).toLocaleUpperCase(language) + name.slice(1);
}

// Sets the messages that elements name: `data-message` of their text, `data-message-title` of their title,
// and so on for all attributes.
export function fillMessages(root) {
  for (const place of root.querySelectorAll("*")) {
    for (const { name, value } of [...place.attributes]) {
      if (name === "data-message") place.textContent = formatMessage(value);
      else if (name.startsWith(ATTRIBUTE)) place.setAttribute(name.slice(ATTRIBUTE.length), formatMessage(value));
    }
  }
}

const ATTRIBUTE = "data-message-";
