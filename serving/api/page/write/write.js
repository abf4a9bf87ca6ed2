// Completes texts and chats, token by token.

import { copied } from "../common/clipboard.js";
import { byId, element, fillSelect } from "../common/elements.js";
import { History } from "../common/history.js";
import { showMissing } from "../common/missing.js";
import { GrowingMarkdown } from "../common/markdown.js";
import { formatMessage, formatNumber, formatPercent } from "../common/messages.js";
import { modelTitle } from "../common/models.js";
import { keepAtEnd } from "../common/scrolling.js";
import { stream, showingErrors } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { AttentionView } from "../attention/view.js";
import { queriesOf, weightsOf } from "../attention/maps.js";
import { parameters, showParameters } from "./parameters.js";
import { append, beginTokens, tokensOfChat, tokensOfCompletion } from "./tokens.js";

const OTHERS_SHOWN = 4;
const MOST_TOKENS = 200; // of a text, unless one asks for more: a model that was not made to chat may never end
const MOST_WITH_ATTENTION = 60;
const LEGEND = [1, 0.1, 0.01, 0.001]; // probabilities that are named under the scale
const WITH_USAGE = { stream_options: { include_usage: true } };

let running = null;
let messages = []; // of the chat so far
let latest = null; // the last question of the chat and what shows it: {content, shown}
let models = [];
let view = null;
let history = null;

export function beginWriting() {
  const form = byId("write-form");
  form.addEventListener("submit", (event) => { event.preventDefault(); write(); });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && sends(event)) {
      event.preventDefault();
      form.requestSubmit();
    }
    if (event.key === "Escape") running?.abort();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", clear);
  byId("again").addEventListener("click", () => { if (askAgain()) form.requestSubmit(); });
  byId("edit").addEventListener("click", () => { if (askAgain()) byId("prompt").focus(); });
  byId("copy-answer").addEventListener("click", () => copied(byId("copy-answer"), messages.at(-1).content, latest.shown[1]));
  byId("logprobs").addEventListener("change", () => byId("legend").classList.toggle("invisible", !byId("logprobs").checked));
  byId("writer").addEventListener("change", offerModes);
  byId("show-attention").addEventListener("change", showMode);
  for (const input of document.getElementsByName("mode")) input.addEventListener("change", showMode);
  beginTokens(byId("written"));
  byId("legend-ticks").replaceChildren(...LEGEND.map((share) => element("span", { textContent: formatPercent(share, { maximumFractionDigits: 1 }) })));
  view = new AttentionView(byId("written-attention"));
  history = new History("write", ({ text }) => { byId("prompt").value = text; byId("prompt").focus(); });
  offerSnippet(byId("write"), formatMessage("write.snippet"), () => ({ path: path(), body: isChat() ? chatBody() : completionBody() }));
}

export function offerWriters(all) {
  models = all.filter((model) => model.task === "generate" && !model.picture); // those have a tab of their own
  fillSelect(byId("writer"), models.map((model) => [model.id, modelTitle(model)]));
  byId("begin").disabled = !models.length;
  showMissing("write", !models.length);
  offerModes();
}

const chosenModel = () => models.find(({ id }) => id === byId("writer").value);

function offerModes() {
  const [completion, chat] = document.getElementsByName("mode");
  chat.disabled = !chosenModel()?.has_chat_template;
  (chat.disabled ? completion : chat).checked = true;
  byId("show-attention").disabled = !attentionQueries().length;
  showMode();
}

function showHints() {
  const hints = {
    [isChat() ? "write.send.title" : "write.begin.title"]: true,
    "write.no-chat": document.querySelector("[name=mode][value=chat]").disabled,
    "write.no-attention": byId("show-attention").disabled,
  };
  const shown = Object.keys(hints).filter((key) => models.length && hints[key]);
  byId("write-hint").textContent = shown.map((key) => formatMessage(key)).filter(Boolean).join(" ");
}

// In a chat Enter sends and Shift+Enter breaks the line; a text needs Control too. Enter that ends the
// choice of an input method is neither.
const sends = (event) => !endsComposition(event) && (event.ctrlKey || event.metaKey || (isChat() && !event.shiftKey));

const endsComposition = (event) => event.isComposing || event.keyCode === 229; // the second is Safari's

const attentionQueries = () => (chosenModel() ? queriesOf(chosenModel()) : []);

const isChat = () => document.querySelector("[name=mode]:checked").value === "chat";

function showMode() {
  byId("prompt-label").textContent = formatMessage(isChat() ? "write.message" : "write.prompt");
  byId("prompt").placeholder = formatMessage(isChat() ? "write.message.placeholder" : "write.prompt.placeholder");
  byId("begin").textContent = formatMessage(isChat() ? "write.send" : "write.begin");
  byId("begin").title = formatMessage(isChat() ? "write.send.title" : "write.begin.title");
  byId("prompt").enterKeyHint = isChat() ? "send" : "enter";
  byId("system-field").hidden = !isChat();
  showHints();
  showOffers();
  showParameters(...currentModel());
}

// What can be done with the last answer of a chat.
function showOffers() {
  const hasAnswer = isChat() && messages.length > 0 && !running;
  for (const name of ["again", "edit", "copy-answer"]) byId(name).hidden = !hasAnswer;
}

// Takes the last question and its answers out of the chat, and the question back to the input.
function askAgain() {
  if (running || !latest) return false;
  messages.splice(-2);
  takeBack(latest.content, ...latest.shown);
  latest = null;
  showOffers();
  return true;
}

const currentParameters = () => parameters(...currentModel());

function currentModel() {
  const { generation, max_model_len: context } = chosenModel() ?? { generation: {}, max_model_len: 0 };
  const most = byId("show-attention").checked ? MOST_WITH_ATTENTION : MOST_TOKENS;
  return [isChat(), generation, Math.min(most, Math.floor(context / 2))];
}

function clear() {
  running?.abort();
  messages = [];
  latest = null;
  showOffers();
  byId("written").replaceChildren();
  byId("token-status").textContent = "";
  byId("write-status").textContent = "";
  view.clear();
}

async function write() {
  if (running || byId("begin").disabled) return;
  running = new AbortController();
  setRunning(true);
  await showingErrors(byId("write-error"), isChat() ? chat : complete);
  running = null;
  setRunning(false);
}

function setRunning(isRunning) {
  byId("begin").disabled = isRunning;
  byId("stop").hidden = !isRunning;
  byId("written").setAttribute("aria-busy", isRunning);
  showOffers();
}

const path = () => (isChat() ? "v1/chat/completions" : "v1/completions");

function completionBody() {
  const wanted = byId("logprobs").checked ? { logprobs: OTHERS_SHOWN } : {};
  return { model: byId("writer").value, prompt: byId("prompt").value, ...currentParameters(), ...wanted };
}

function chatBody() {
  const message = { role: "user", content: byId("prompt").value };
  const wanted = byId("logprobs").checked ? { logprobs: true, top_logprobs: OTHERS_SHOWN } : {};
  return { model: byId("writer").value, messages: [...system(), ...messages, message], ...currentParameters(), ...wanted };
}

async function complete() {
  const body = completionBody();
  const answers = sideBySide(body.n, () => paragraph(body.echo ? "" : who(body.prompt)));
  for await (const { index, text, logprobs } of choices(body)) {
    append(byId("written"), answers.children[index], text, tokensOfCompletion(logprobs));
  }
}

async function chat() {
  const body = chatBody();
  const message = body.messages.at(-1);
  const question = paragraph(who(`${formatMessage("write.you")} `), message.content);
  byId("written").append(question);
  const answers = sideBySide(body.n, () => element("div", { className: "answer" }, who(`${formatMessage("write.model")} `)));
  byId("written").scrollTop = byId("written").scrollHeight;
  byId("prompt").value = "";
  const contents = Array.from(answers.children, () => "");
  const texts = Array.from(answers.children, (answer) => new GrowingMarkdown(answer, 4));
  try {
    for await (const { index, delta, logprobs } of choices(body)) {
      const text = delta.content ?? "";
      if (delta.reasoning_content) byId("write-status").textContent = formatMessage("write.thinks");
      contents[index] += text;
      if (body.logprobs) append(byId("written"), answers.children[index], text, tokensOfChat(logprobs));
      else keepAtEnd(byId("written"), () => texts[index].show(contents[index]));
    }
  } finally {
    if (byId("write-status").textContent === formatMessage("write.thinks")) byId("write-status").textContent = "";
    const [content] = contents; // the chat continues the first answer
    if (content) {
      messages.push(message, { role: "assistant", content });
      latest = { content: message.content, shown: [question, answers] };
    } else takeBack(message.content, question, answers);
  }
}

// Yields the chunks of each choice; at the end, shows the number of tokens.
async function* choices(body) {
  const prompt = byId("prompt").value || body.messages?.at(-1).content;
  if (prompt) history.add({ text: prompt });
  const began = performance.now();
  byId("write-status").textContent = "";
  view.clear();
  const wanted = byId("show-attention").checked && !byId("show-attention").disabled ? { return_attention: attentionQueries() } : {};
  for await (const { choices, usage } of stream(path(), { ...body, ...WITH_USAGE, ...wanted }, running.signal)) {
    yield* choices;
    showAttention(choices);
    if (usage) showUsage(usage.completion_tokens, (performance.now() - began) / 1000);
  }
}

// Attention comes with the last chunk of an answer; that of the first answer is shown.
function showAttention(choices) {
  const first = choices.find(({ index, attention }) => index === 0 && attention);
  if (first) view.show(first.attention.map(weightsOf));
}

function showUsage(tokens, seconds) {
  byId("write-status").textContent = formatMessage("write.usage", {
    count: tokens, seconds: formatNumber(seconds, { minimumFractionDigits: 1, maximumFractionDigits: 1 }), rate: Math.round(tokens / seconds),
  });
}

// A message without an answer goes back to the input, where it can be changed.
function takeBack(content, ...shown) {
  byId("prompt").value ||= content;
  for (const element of shown) element.remove();
}

const who = (textContent) => element("span", { className: "who", textContent });

function system() {
  const content = byId("system").value.trim();
  return content ? [{ role: "system", content }] : [];
}

const paragraph = (...children) => element("p", {}, ...children);

// Answers that grow at the same time do not move each other.
function sideBySide(count, make) {
  const column = element("div", { className: "answers" }, ...Array.from({ length: count ?? 1 }, make));
  byId("written").append(column);
  return column;
}
