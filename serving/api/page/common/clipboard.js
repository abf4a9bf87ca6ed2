// Copies texts.

import { formatMessage } from "./messages.js";

const MILLISECONDS = 2000;

// Without TLS, or without leave, a browser gives pages no clipboard: then the text is selected.
// button: says what has been done. place: shows the text.
export async function copied(button, text, place) {
  getSelection().selectAllChildren(place);
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false);
  const name = button.textContent;
  button.textContent = formatMessage(isCopied ? "common.copied" : "common.selected");
  setTimeout(() => { button.textContent = name; }, MILLISECONDS);
}
