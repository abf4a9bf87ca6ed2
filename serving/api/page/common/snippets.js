// Shows how a program asks for what a person asks for on the page.

import { element } from "./elements.js";
import { shownKey } from "./server.js";
import { copied } from "./clipboard.js";
import { formatMessage } from "./messages.js";

export const FILE = "<the file in base64>"; // stands for it in a body

const LANGUAGES = { curl: inCurl, Python: inPython };

// panel: it changes with what is chosen there. title: what is asked for. request: returns {path, body}, {path, form} with the
// fields of a form, one of which is a file and others may have lists of values, or {path} alone. base64: the name of FILE.
// place: it is added below.
export function offerSnippet(panel, title, request, place = panel) {
  const code = element("pre", { tabIndex: 0 });
  const language = element("select", {}, ...Object.keys(LANGUAGES).map((name) => element("option", { textContent: name })));
  language.setAttribute("aria-label", formatMessage("common.language"));
  const copy = element("button", { type: "button", className: "quiet", textContent: formatMessage("common.copy") });
  const bar = element("div", { className: "bar" }, language, copy);
  const details = element("details", { className: "snippet" }, element("summary", { textContent: title }), bar, code);
  const draw = () => { if (details.open) code.textContent = snippet(request, LANGUAGES[language.value]); };
  copy.addEventListener("click", () => copied(copy, code.textContent, code));
  for (const name of ["input", "change", "click"]) panel.addEventListener(name, draw); // of what is asked for
  details.addEventListener("toggle", draw);
  place.append(details);
}

function snippet(request, inLanguage) {
  try {
    const { path, ...rest } = request();
    return inLanguage({ url: new URL(path, document.baseURI).href, hasKey: Boolean(shownKey()), ...rest });
  } catch (error) {
    return error.message; // of a parameter that cannot be read
  }
}

function inCurl({ url, body, form, base64, hasKey }) {
  const key = hasKey ? ['-H "Authorization: Bearer $KEY"'] : [];
  const json = body ? ["-H 'Content-Type: application/json'", `-d @- <<END\n${inShell(body, base64)}\nEND`] : [];
  const parts = Object.entries(form ?? {}).flatMap(([name, values]) => [values].flat().map((value) => `-F ${inQuotes(`${name}=${value}`)}`));
  return [`curl ${url}`, ...key, ...json, ...parts].join(" \\\n  ");
}

const inQuotes = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function inShell(body, file) {
  const json = JSON.stringify(body, null, 1).replace(/[\\$`]/g, "\\$&");
  if (!file) return json; // a text may hold the words of FILE
  return json.replace(FILE, () => `$(base64 < ${inQuotes(file)} | tr -d '\\n')`);
}

function inPython({ url, body, form, base64, hasKey }) {
  const call = body || form ? "post" : "get";
  const { file, ...fields } = form ?? {};
  const options = [
    `"${url}"`,
    ...(body ? [`json=${base64 ? literal(body).replace(`${FILE}"`, '" + content') : literal(body)}`] : []),
    ...(file ? [`files={"file": open(${literal(file.slice(1))}, "rb")}`, `data=${literal(fields)}`] : []),
    ...(hasKey ? ['headers={"Authorization": "Bearer " + os.environ["KEY"]}'] : []),
  ];
  const modules = `${base64 ? "import base64\n" : ""}${hasKey ? "import os\n" : ""}`;
  const read = base64 ? `content = base64.b64encode(open(${literal(base64)}, "rb").read()).decode()\n` : "";
  return `${modules}${modules && "\n"}import requests\n\n${read}answer = requests.${call}(\n    ${options.join(",\n    ")},\n)\nprint(answer.text)`;
}

function literal(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${literal(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
