// Shows by layer and head what the words of a sentence look at, where somebody wants to see it.

import { byId } from "../common/elements.js";
import { tellingErrors } from "../common/server.js";
import { Look } from "../look/look.js";

let look = null;
let models = [];
let drawn = null; // the views that are shown

// opened: is called when somebody wants to see it.
export function beginLooking(opened) {
  look = new Look(byId("look"));
  byId("look-details").addEventListener("toggle", opened);
}

export function offerLooks(all) {
  models = all;
}

export function clearLooks() {
  drawn = null;
  look.clear();
  byId("look-said").textContent = "";
}

// isWanted: is asked once the answer is there.
export async function showLooks(translation, sentence, isWanted) {
  if (!byId("look-details").open) return;
  const views = await tellingErrors(byId("look-said"), () => translation.viewsOf(sentence, models));
  if (!isWanted()) return;
  if (!views) look.clear();
  else if (views !== drawn) look.show(views);
  drawn = views;
}
