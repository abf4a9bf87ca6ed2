// Compares texts with one text, by a model that makes vectors of texts or orders them.

import { byId, element, fillSelect } from "../common/elements.js";
import { formatMessage, formatNumber } from "../common/messages.js";
import { showMissing } from "../common/missing.js";
import { post, showingErrors } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";

const DIGITS = { minimumFractionDigits: 3, maximumFractionDigits: 3 };

export function beginComparing() {
  byId("compare-form").addEventListener("submit", (event) => { event.preventDefault(); compare(); });
  offerSnippet(byId("compare"), formatMessage("compare.snippet"), () => ({ path: "v1/rerank", body: requestBody() }));
}

export function offerComparers(models) {
  const able = models.filter(({ task }) => task === "embed" || task === "classify");
  fillSelect(byId("comparer"), able.map(({ id }) => [id, id]));
  showMissing("compare", !able.length);
}

const requestBody = () => ({
  model: byId("comparer").value,
  query: byId("query").value,
  documents: byId("compared").value.split("\n").filter((line) => line.trim()),
});

async function compare() {
  const body = requestBody();
  const answer = await showingErrors(byId("compare-error"), () => post("v1/rerank", body));
  if (!answer) return;
  byId("similar").replaceChildren(...answer.results.map(({ index, relevance_score: score }) => resultItem(body.documents[index], score)));
}

function resultItem(text, score) {
  const bar = element("progress", { max: 1, value: Math.max(0, score) });
  bar.setAttribute("aria-hidden", "true"); // the figure says it
  return element("li", {}, bar, element("span", { textContent: formatNumber(score, DIGITS) }), element("span", { textContent: text }));
}
