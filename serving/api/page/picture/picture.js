// Writes about a picture, and shows what each word looks at in it.

import { whenBack } from "../common/connection.js";
import { onDrop } from "../common/dropping.js";
import { byId, element, fillSelect, withArrows } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { showMissing } from "../common/missing.js";
import { post, Refused, showingErrors } from "../common/server.js";
import { FILE, offerSnippet } from "../common/snippets.js";
import { draw } from "./drawing.js";

const FORMATS = ["image/png", "image/jpeg", "image/webp", "image/gif"];
const PATH = "v1/chat/completions";

let models = [];
let file = { name: "picture.png", type: FORMATS[0] }; // a request shows this name before one is chosen
let picture = null; // what the browser reads of the file
let words = []; // {text, weights}
let asking = null;

export function beginPictures() {
  const [panel, caption] = [byId("picture"), byId("caption")];
  byId("picture-file").addEventListener("change", ({ target }) => { choose([...target.files]); target.value = ""; });
  addEventListener("paste", ({ clipboardData }) => { if (!panel.hidden) choose(clipboardData.files); });
  onDrop(panel, choose);
  byId("picture-reader").addEventListener("change", ask);
  withArrows(caption, ".word");
  const focused = () => words[document.activeElement?.dataset.number];
  for (const name of ["mouseover", "focusin"]) caption.addEventListener(name, ({ target }) => showAttention(words[target.dataset.number] ?? focused()));
  for (const name of ["mouseleave", "focusout"]) caption.addEventListener(name, () => showAttention(focused()));
  whenBack(() => { if (!caption.hasChildNodes()) ask(); });
  offerSnippet(panel, formatMessage("picture.snippet"), () =>
    ({ path: PATH, body: bodyOf(`data:${file.type};base64,${FILE}`), base64: file.name }));
}

export function offerPictures(all) {
  models = all.filter((model) => model.picture);
  fillSelect(byId("picture-reader"), models.map(({ id }) => [id, id]));
  showMissing("picture", !models.length);
}

const chosenModel = () => models.find(({ id }) => id === byId("picture-reader").value);

async function choose([chosen]) {
  const read = chosen && await showingErrors(byId("picture-error"), () => bitmapOf(chosen));
  if (!read) return;
  picture?.close(); // else browsers may keep its 100 MB for a long time
  [file, picture] = [chosen, read];
  byId("picture-reader").dispatchEvent(new Event("change", { bubbles: true })); // the request below changes, too
}

async function bitmapOf(chosen) {
  const refusal = new Refused(formatMessage("picture.unreadable", { name: chosen.name }));
  if (!FORMATS.includes(chosen.type)) throw refusal;
  return createImageBitmap(chosen).catch(() => { throw refusal; });
}

async function ask() {
  asking?.abort();
  if (!picture) return;
  asking = new AbortController();
  const { signal } = asking;
  show([], "");
  byId("caption").setAttribute("aria-busy", true);
  const answer = await showingErrors(byId("picture-error"), async () => post(PATH, bodyOf(await urlOf(file)), signal));
  if (signal.aborted) return; // another one is asked for
  byId("caption").setAttribute("aria-busy", false);
  if (!answer) return;
  const [{ message: { content }, attention }] = answer.choices;
  show(attention ? wordsOf(attention[0], chosenModel().picture.num_class_tokens) : [], content.trim() || formatMessage("picture.caption.nothing"));
}

const urlOf = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(reader.error);
  reader.readAsDataURL(blob);
});

// Asks for what `attendant caption` draws: the mean over the heads of the decoder's last layer.
function bodyOf(url) {
  const { id, attention } = chosenModel() ?? {};
  const messages = [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }];
  const query = attention?.cross && { kind: "cross", layers: [attention.cross.num_layers - 1], mean: true };
  return { model: id, messages, ...(query && { return_attention: [query] }) };
}

// text: is shown where there are no words.
function show(captionWords, text) {
  words = captionWords;
  const elements = words.flatMap((word, number) => [number ? " " : "", wordElement(word.text, number)]);
  byId("caption").replaceChildren(...(elements.length ? elements : [text].filter(Boolean)));
  showAttention();
}

// Returns {text, weights} of words; one looks where its tokens do, in the mean.
function wordsOf({ row_tokens: tokens, weights: [[rows]] }, numClassTokens) {
  const captionWords = [];
  const decoder = new TextDecoder();
  tokens.forEach((token, place) => {
    if (!captionWords.length || !token.trim() || /^\s/.test(token)) captionWords.push({ text: "", weights: [] });
    captionWords.at(-1).text += decoder.decode(bytesOf(token), { stream: true });
    captionWords.at(-1).weights.push(rows[place].slice(numClassTokens));
  });
  return captionWords.map(({ text, weights }) => ({ text: text.trim(), weights: mean(weights) })).filter(({ text }) => text);
}

const mean = (rows) => rows[0].map((_, place) => rows.reduce((sum, row) => sum + row[place], 0) / rows.length);

// The server writes a part of a character as bytes:\xc3.
const bytesOf = (token) => (token.startsWith("bytes:\\x")
  ? Uint8Array.from(token.slice("bytes:\\x".length).split("\\x"), (hex) => parseInt(hex, 16))
  : new TextEncoder().encode(token));

function wordElement(textContent, number) {
  const word = element("span", { className: "word", textContent, tabIndex: number ? -1 : 0 });
  word.setAttribute("role", "button");
  word.dataset.number = number;
  return word;
}

// Lights up what a word looks at; without a word, the whole picture.
function showAttention(word) {
  if (!picture) return;
  const { size, resized } = chosenModel().picture;
  draw(byId("picture-shown"), picture, word?.weights, size / resized);
  const hint = words.length ? formatMessage("picture.help") : "";
  byId("picture-status").textContent = word ? described(word) : hint;
}

function described({ text, weights }) {
  const [side, largest] = [Math.sqrt(weights.length), Math.max(...weights)];
  const place = weights.indexOf(largest);
  return formatMessage("picture.looks-at", {
    word: text, row: Math.floor(place / side) + 1, column: (place % side) + 1, weight: formatPercent(largest),
  });
}
