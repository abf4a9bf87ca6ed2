// Shows by layer and head what the words of a sentence look at, where somebody wants to see it.

import { byId } from "../common/elements.js";
import { tellingErrors } from "../common/server.js";
import { Look } from "../look/look.js";

let look = null;
let models = [];
let drawn = null; // what is shown of a sentence

// opened: is called when somebody wants to see it.
export function beginLooking(opened) {
  look = new Look(byId("look"));
  byId("look-details").addEventListener("toggle", opened);
}

export function offerLooks(all) {
  models = all;
}

export function clearLooks() {
  clearViews();
  byId("look-said").textContent = "";
}

// isWanted: is asked once the answer is there.
export async function showLooks(translation, sentence, isWanted) {
  if (!byId("look-details").open) return;
  const looks = await tellingErrors(byId("look-said"), () => translation.looksAt(sentence, models));
  if (!isWanted()) return;
  if (!looks) return clearViews();
  byId("look-said").textContent = `As ${looks.model} reads both.`;
  if (looks !== drawn) look.show(looks.views);
  drawn = looks;
}

function clearViews() {
  drawn = null;
  look.clear();
}
