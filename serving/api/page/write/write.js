// Completes texts and chats, token by token.

import { byId, element, fillSelect } from "../common/elements.js";
import { stream, tellingErrors } from "../common/server.js";
import { Look } from "../look/look.js";
import { looksOf, viewOf } from "../look/served.js";
import { parameters, showParameters } from "./parameters.js";
import { append, beginTokens, tokensOfChat, tokensOfCompletion } from "./tokens.js";

const OTHERS_SHOWN = 4;
const WITH_USAGE = { stream_options: { include_usage: true } };

let running = null;
let messages = []; // of the chat so far
let models = [];
let look = null;

export function beginWriting() {
  const form = byId("write-form");
  form.addEventListener("submit", (event) => { event.preventDefault(); write(); });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    if (event.key === "Escape") running?.abort();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", clear);
  byId("logprobs").addEventListener("change", () => byId("legend").classList.toggle("unseen", !byId("logprobs").checked));
  byId("writer").addEventListener("change", offerModes);
  for (const each of document.getElementsByName("mode")) each.addEventListener("change", showMode);
  beginTokens(byId("written"));
  look = new Look(byId("written-look"));
}

export function offerWriters(all) {
  models = all.filter((model) => model.task !== "translate");
  fillSelect(byId("writer"), models.map(({ id }) => [id, id]));
  byId("begin").disabled = !models.length;
  byId("write-said").textContent = models.length ? "" : "This server has no model that writes.";
  offerModes();
}

const chosenModel = () => models.find(({ id }) => id === byId("writer").value);

function offerModes() {
  const [completion, chat] = document.getElementsByName("mode");
  chat.disabled = !chosenModel()?.has_chat_template;
  chat.parentElement.title = chat.disabled ? "This model was not made to chat" : "";
  (chat.disabled ? completion : chat).checked = true;
  byId("looks").disabled = !looks().length;
  showMode();
}

const looks = () => (chosenModel() ? looksOf(chosenModel()) : []);

const isChat = () => document.querySelector("[name=mode]:checked").value === "chat";

function showMode() {
  byId("prompt-label").textContent = isChat() ? "Message" : "Beginning of the text";
  byId("prompt").placeholder = isChat() ? "Say something" : "Once upon a time";
  byId("begin").textContent = isChat() ? "Send" : "Write";
  byId("system-field").hidden = !isChat();
  showParameters(isChat(), chosenModel()?.generation ?? {});
}

function clear() {
  running?.abort();
  messages = [];
  byId("written").replaceChildren();
  byId("token-said").textContent = "";
  byId("write-said").textContent = "";
  look.clear();
}

async function write() {
  if (running || byId("begin").disabled) return;
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
  const body = { model: byId("writer").value, prompt, ...WITH_USAGE, ...parameters(), ...wanted };
  const answers = sideBySide(body.n, () => paragraph(body.echo ? "" : who(prompt)));
  for await (const { index, text, logprobs } of choices("v1/completions", body)) {
    append(byId("written"), answers.children[index], text, tokensOfCompletion(logprobs));
  }
}

async function chat() {
  const said = { role: "user", content: byId("prompt").value };
  const wanted = byId("logprobs").checked ? { logprobs: true, top_logprobs: OTHERS_SHOWN } : {};
  const body = { model: byId("writer").value, messages: [...system(), ...messages, said], ...WITH_USAGE, ...parameters(), ...wanted };
  const question = paragraph(who("You: "), said.content);
  byId("written").append(question);
  const answers = sideBySide(body.n, () => paragraph(who("Model: ")));
  byId("prompt").value = "";
  let content = ""; // of the first answer, which the chat goes on from
  try {
    for await (const { index, delta, logprobs } of choices("v1/chat/completions", body)) {
      const text = delta.content ?? "";
      if (index === 0) content += text;
      append(byId("written"), answers.children[index], text, tokensOfChat(logprobs));
    }
  } finally {
    if (content) messages.push(said, { role: "assistant", content });
    else takeBack(said.content, question, answers);
  }
}

// Yields what comes of each choice; at the end, tells how much it was.
async function* choices(path, body) {
  const began = performance.now();
  byId("write-said").textContent = "";
  look.clear();
  const wanted = byId("looks").checked && !byId("looks").disabled ? { return_attention: looks() } : {};
  for await (const { choices: given, usage } of stream(path, { ...body, ...wanted }, running.signal)) {
    yield* given;
    showLook(given);
    if (usage) tellUsage(usage.completion_tokens, (performance.now() - began) / 1000);
  }
}

// What its tokens look at comes with the end of an answer; of several the first is shown.
function showLook(given) {
  const first = given.find(({ index, attention }) => index === 0 && attention);
  if (first) look.show(first.attention.map(viewOf));
}

function tellUsage(tokens, seconds) {
  byId("write-said").textContent = `${tokens} tokens in ${seconds.toFixed(1)} s`;
}

// What was not answered can be changed and sent again.
function takeBack(content, ...shown) {
  byId("prompt").value ||= content;
  for (const each of shown) each.remove();
}

const who = (textContent) => element("span", { className: "who", textContent });

function system() {
  const content = byId("system").value.trim();
  return content ? [{ role: "system", content }] : [];
}

const paragraph = (...children) => element("p", {}, ...children);

// Answers that grow at the same time: none moves another.
function sideBySide(count, make) {
  const made = element("div", { className: "answers" }, ...Array.from({ length: count ?? 1 }, make));
  byId("written").append(made);
  return made;
}
