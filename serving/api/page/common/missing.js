// Says how a model is had, in the place of a tab that no model of the server serves.

import { byId } from "./elements.js";
import { elementsOf } from "./markdown.js";
import { formatMessage } from "./messages.js";

const SERVE = "attendant serve build/bundles/*";

// What fetches a model for a tab.
const PULL = {
  write: "attendant pull smollm2-135m-instruct -o build/bundles/smollm2",
  compare: "attendant pull all-minilm-l6-v2 -o build/bundles/minilm",
  picture: "attendant pull nlpconnect/vit-gpt2-image-captioning -o build/bundles/vit-gpt2",
  transcribe: "attendant pull whisper-base -o build/bundles/whisper-base",
};

// name: of the tab; its panel has a place for this sentence, and elements that need a model.
export function showMissing(name, isMissing) {
  const text = `${formatMessage(`${name}.no-model`)}\n\n\`\`\`sh\n${PULL[name]}\n${SERVE}\n\`\`\``;
  byId(`${name}-missing`).replaceChildren(...(isMissing ? elementsOf(text, 3) : []));
  byId(`${name}-missing`).hidden = !isMissing;
  for (const needing of byId(name).querySelectorAll(".needs-model, .snippet")) needing.hidden = isMissing;
}
