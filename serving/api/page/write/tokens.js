// Shows tokens, coloured by probability.

import { byId, element, withArrows } from "../common/elements.js";
import { formatMessage, formatPercent } from "../common/messages.js";
import { keepAtEnd } from "../common/scrolling.js";

const DARKEST = Math.log(1000); // for a probability of 0.001 or less

export const tokensOfCompletion = (logprobs) => (logprobs?.tokens ?? []).map((text, number) => ({
  text,
  logprob: logprobs.token_logprobs[number],
  others: Object.entries(logprobs.top_logprobs[number] ?? {}),
}));

export const tokensOfChat = (logprobs) => (logprobs?.content ?? []).map((token) => ({
  text: token.token,
  logprob: token.logprob,
  others: token.top_logprobs.map((other) => [other.token, other.logprob]),
}));

// Tokens that are part of a character have no text; then the chunk is shown as one.
export function append(box, answer, text, tokens) {
  const isSplit = tokens.map((token) => token.text).join("") === text;
  keepAtEnd(box, () => {
    if (!tokens.length) answer.append(text);
    else if (isSplit) answer.append(...tokens.map((token) => coloured(box, token.text, token)));
    else if (text) answer.append(coloured(box, text, tokens.reduce((one, other) => (other.logprob < one.logprob ? other : one))));
  });
}

// The first token of a prompt that is echoed has no probability.
function coloured(box, textContent, { logprob, others }) {
  const span = element("span", { className: "token", textContent, tabIndex: -1 });
  const surprise = Math.min(-(logprob ?? 0) / DARKEST, 1);
  span.style.setProperty("--surprise", surprise.toFixed(3));
  span.dataset.text = [[textContent, logprob ?? 0], ...others.filter(([text]) => text !== textContent)]
    .map(([text, value]) => formatMessage("write.token", { token: text, probability: formatProbability(value) }))
    .join(", ");
  if (!box.querySelector(".token[tabindex='0']")) span.tabIndex = 0;
  return span;
}

const formatProbability = (logprob) => formatPercent(Math.exp(logprob), { maximumSignificantDigits: 2 });

export function beginTokens(box) {
  withArrows(box, ".token");
  for (const name of ["mouseover", "focusin"]) {
    box.addEventListener(name, (event) => {
      const token = event.target.closest(".token");
      if (token) byId("token-status").textContent = token.dataset.text;
    });
  }
}
