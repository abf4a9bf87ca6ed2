// Completes texts and chats, token by token.

import { byId, element, fillSelect, withArrows } from "./elements.js";
import { Refused, stream, tellingErrors } from "./server.js";

const OTHERS_SHOWN = 4;

let running = null;
let messages = []; // of the chat so far
let models = [];

export function beginWriting() {
  const form = byId("write-form");
  form.addEventListener("submit", (event) => { event.preventDefault(); write(); });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", clear);
  byId("logprobs").addEventListener("change", () => byId("legend").classList.toggle("unseen", !byId("logprobs").checked));
  byId("writer").addEventListener("change", offerModes);
  form.addEventListener("change", nameThePrompt);
  beginTokens(byId("written"));
}

export function offerWriters(all) {
  models = all.filter((model) => model.task !== "translate");
  fillSelect(byId("writer"), models.map(({ id }) => [id, id]));
  byId("begin").disabled = !models.length;
  byId("token-said").textContent = models.length ? "" : "This server has no model that writes.";
  offerModes();
}

function offerModes() {
  const model = models.find(({ id }) => id === byId("writer").value);
  const [completion, chat] = document.getElementsByName("mode");
  chat.disabled = !model?.has_chat_template;
  (chat.disabled ? completion : chat).checked = true;
  nameThePrompt();
}

const isChat = () => document.querySelector("[name=mode]:checked").value === "chat";

function nameThePrompt() {
  byId("prompt-label").textContent = isChat() ? "Message" : "Beginning of the text";
}

function clear() {
  running?.abort();
  messages = [];
  byId("written").replaceChildren();
  byId("token-said").textContent = "";
}

async function write() {
  if (running) return;
  running = new AbortController();
  setRunning(true);
  await tellingErrors(byId("write-error"), isChat() ? chat : complete);
  running = null;
  setRunning(false);
}

function setRunning(isRunning) {
  byId("begin").disabled = isRunning;
  byId("stop").disabled = !isRunning;
  byId("written").setAttribute("aria-busy", isRunning);
}

async function complete() {
  const prompt = byId("prompt").value;
  const wanted = byId("logprobs").checked ? { logprobs: OTHERS_SHOWN } : {};
  const body = { model: byId("writer").value, prompt, ...parameters(), ...wanted };
  const answer = paragraph(element("span", { className: "who", textContent: prompt }));
  for await (const { choices: [choice] } of stream("v1/completions", body, running.signal)) {
    if (choice) append(answer, choice.text, tokensOfCompletion(choice.logprobs));
  }
}

async function chat() {
  const said = { role: "user", content: byId("prompt").value };
  const wanted = byId("logprobs").checked ? { logprobs: true, top_logprobs: OTHERS_SHOWN } : {};
  const body = { model: byId("writer").value, messages: [...system(), ...messages, said], ...parameters(), ...wanted };
  const question = paragraph(who("You"), said.content);
  const answer = paragraph(who("Model"));
  byId("prompt").value = "";
  let content = "";
  try {
    for await (const { choices: [choice] } of stream("v1/chat/completions", body, running.signal)) {
      content += choice?.delta.content ?? "";
      if (choice) append(answer, choice.delta.content ?? "", tokensOfChat(choice.logprobs));
    }
  } finally {
    if (content) messages.push(said, { role: "assistant", content });
    else takeBack(said.content, question, answer);
  }
}

// What was not answered can be changed and sent again.
function takeBack(content, ...paragraphs) {
  byId("prompt").value ||= content;
  for (const each of paragraphs) each.remove();
}

const who = (name) => element("span", { className: "who", textContent: `${name}: ` });

function system() {
  const content = byId("system").value.trim();
  return content ? [{ role: "system", content }] : [];
}

function parameters() {
  const numbers = [...byId("parameters").querySelectorAll("input")].filter((input) => input.value !== "");
  const stop = byId("stop-text").value;
  const given = Object.fromEntries(numbers.map((input) => [input.id, input.valueAsNumber]));
  return { ...given, ...(stop && { stop }), ...more() };
}

function more() {
  const written = byId("more").value.trim();
  if (!written) return {};
  try {
    return JSON.parse(written);
  } catch {
    throw new Refused("The other fields are no JSON object.");
  }
}

function paragraph(...children) {
  const made = element("p", {}, ...children);
  byId("written").append(made);
  return made;
}

const tokensOfCompletion = (logprobs) => (logprobs?.tokens ?? []).map((text, number) => ({
  text,
  logprob: logprobs.token_logprobs[number],
  others: Object.entries(logprobs.top_logprobs[number] ?? {}),
}));

const tokensOfChat = (logprobs) => (logprobs?.content ?? []).map((each) => ({
  text: each.token,
  logprob: each.logprob,
  others: each.top_logprobs.map((other) => [other.token, other.logprob]),
}));

// Tokens that are part of a character have no text of their own: then the piece is shown as one.
function append(answer, text, tokens) {
  const box = byId("written");
  const wasAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const isSplit = tokens.map((token) => token.text).join("") === text;
  if (!tokens.length) answer.append(text);
  else if (isSplit) answer.append(...tokens.map((token) => coloured(token.text, token)));
  else if (text) answer.append(coloured(text, tokens.reduce((one, other) => (other.logprob < one.logprob ? other : one))));
  if (wasAtEnd) box.scrollTop = box.scrollHeight;
}

function coloured(textContent, { logprob, others }) {
  const made = element("span", { className: "token", textContent, tabIndex: -1 });
  made.style.setProperty("--p", Math.exp(logprob ?? 0).toFixed(3));
  made.dataset.said = [[textContent, logprob], ...others.filter(([text]) => text !== textContent)]
    .map(([text, value]) => `“${text}” ${percent(value)}`)
    .join(", ");
  if (!byId("written").querySelector(".token[tabindex='0']")) made.tabIndex = 0;
  return made;
}

const percent = (logprob) => `${(100 * Math.exp(logprob)).toPrecision(2)}\u00a0%`;

function beginTokens(box) {
  withArrows(box, ".token");
  for (const name of ["mouseover", "focusin"]) {
    box.addEventListener(name, (event) => {
      const token = event.target.closest(".token");
      if (token) byId("token-said").textContent = token.dataset.said;
    });
  }
}
