// Shows the attention of a sentence by layer and head.

import { byId } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { showingErrors } from "../common/server.js";
import { AttentionView } from "../attention/view.js";

let view = null;
let models = [];
let drawn = null; // the attention that is shown

export function beginHeads() {
  view = new AttentionView(byId("heads"));
}

export function offerHeads(all) {
  models = all;
}

export function clearHeads() {
  clearViews();
  byId("heads-status").textContent = "";
}

// isWanted: called when the answer has come.
export async function showHeads(translation, sentence, isWanted) {
  const sentenceHeads = await showingErrors(byId("heads-status"), () => translation.headsOf(sentence, models));
  if (!isWanted()) return;
  if (!sentenceHeads) return clearViews();
  byId("heads-status").textContent = formatMessage("attention.by-model", { model: sentenceHeads.model });
  if (sentenceHeads !== drawn) view.show(sentenceHeads.views);
  drawn = sentenceHeads;
}

function clearViews() {
  drawn = null;
  view.clear();
}
