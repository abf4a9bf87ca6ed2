// Translates documents that are dropped or chosen, and shows how far they are.

import { onDrop } from "../common/dropping.js";
import { byId, element } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { post, postForBlob, postForm, Refused, remove, Unreachable } from "../common/server.js";

const MILLISECONDS = 500;

// languages: returns the chosen source, target and model.
export function beginDocuments(languages) {
  const translate = (files) => { for (const file of files) translateOne(file, languages()); };
  byId("file").addEventListener("change", (event) => {
    translate(event.target.files);
    event.target.value = "";
  });
  onDrop(byId("translate"), translate);
}

async function translateOne(file, { source, target, model }) {
  const line = new Line(file.name);
  const form = new FormData();
  const fields = { source_lang: source === "auto" ? "" : source, target_lang: target, model };
  for (const [name, value] of Object.entries(fields)) if (value) form.append(name, value);
  form.append("file", file);
  try {
    const handle = await postForm("v2/document", form, line.signal);
    await follow(handle, line);
    const { segments } = await post(`${pathOf(handle)}/segments`, keyOf(handle), line.signal);
    const result = await postForBlob(`${pathOf(handle)}/result`, keyOf(handle), line.signal);
    line.finish(result, `${target}-${file.name}`);
    line.compare(segments, target);
  } catch (error) {
    if (error.name !== "AbortError") line.fail(error instanceof Refused ? error.message : formatMessage("documents.unreadable"));
  }
}

const pathOf = ({ document_id }) => `v2/document/${document_id}`;
const keyOf = ({ document_key }) => ({ document_key });

// Waits for a document; the server deletes one that the user has removed.
async function follow(handle, line) {
  for (;;) {
    if (line.signal.aborted) {
      await remove(`${pathOf(handle)}?${new URLSearchParams(keyOf(handle))}`);
      line.signal.throwIfAborted();
    }
    const status = await statusOf(handle);
    if (status?.status === "error") throw new Refused(status.error_message);
    if (status) line.show(status);
    if (status?.status === "done") return;
    await new Promise((resolve) => { setTimeout(resolve, MILLISECONDS); });
  }
}

// Shows no error while the server is stopped: after a restart it continues its documents.
async function statusOf(handle) {
  try {
    return await post(pathOf(handle), keyOf(handle));
  } catch (error) {
    if (error instanceof Unreachable) return null;
    throw error;
  }
}

// The list item of one document.
class Line {
  constructor(name) {
    const cancelling = new AbortController();
    this.signal = cancelling.signal;
    this.name = name;
    this.progress = element("progress");
    this.progress.setAttribute("aria-label", formatMessage("documents.progress", { name }));
    this.state = element("small", { textContent: formatMessage("documents.sending") });
    this.button = element("button", { type: "button", className: "quiet", textContent: formatMessage("documents.cancel") });
    this.button.setAttribute("aria-label", formatMessage("documents.cancel.label", { name }));
    this.button.addEventListener("click", () => { cancelling.abort(); this.item.remove(); });
    const side = element("div", { className: "state" }, this.progress, this.state);
    this.item = element("li", {}, element("span", { textContent: name }), side, this.button);
    byId("documents").prepend(this.item);
  }

  show({ fragments, fragments_done: done }) {
    if (fragments) Object.assign(this.progress, { max: fragments, value: done });
    this.state.textContent = fragments
      ? formatMessage("documents.parts", { done, count: fragments }) : formatMessage("documents.waiting");
  }

  finish(blob, download) {
    const href = URL.createObjectURL(blob);
    const link = element("a", { href, download, textContent: formatMessage("documents.download") });
    link.setAttribute("aria-label", formatMessage("documents.download.label", { name: download }));
    this.button.replaceWith(link);
    byId("documents-status").textContent = formatMessage("documents.done", { name: this.name });
  }

  // segments: {source, target} of the first paragraphs.
  compare(segments, language) {
    const rows = segments.map(({ source, target }) => element("tr", {},
      element("td", { dir: "auto", textContent: source }), element("td", { dir: "auto", lang: language, textContent: target ?? "" })));
    const heading = (key) => element("th", { scope: "col", textContent: formatMessage(key) });
    const table = element("table", {},
      element("thead", {}, element("tr", {}, heading("documents.compare.original"), heading("translate.translation"))), element("tbody", {}, ...rows));
    const frame = element("div", { className: "side-by-side", tabIndex: 0, role: "region", ariaLabel: formatMessage("documents.compare.label", { name: this.name }) }, table);
    this.item.append(element("details", { className: "comparison" }, element("summary", { textContent: formatMessage("documents.compare") }), frame));
  }

  fail(message) {
    const failed = element("span", { className: "error", textContent: message });
    failed.setAttribute("role", "alert");
    this.item.replaceChildren(this.item.firstChild, failed);
  }
}
