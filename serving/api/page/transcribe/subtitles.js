// Writes segments, {start, end, text}, as files, and offers these.

import { element } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { formatTimestamp } from "./times.js";

const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

export const textOf = (segments) => segments.map(({ text }) => text.trim()).join("\n");

const cue = ({ start, end }, separator) => `${formatTimestamp(start, separator)} --> ${formatTimestamp(end, separator)}`;

const WRITERS = {
  srt: (segments) => segments.map((segment, number) => `${number + 1}\n${cue(segment, ",")}\n${segment.text.trim()}\n`).join("\n"),
  vtt: (segments) => ["WEBVTT\n", ...segments.map((segment) => `${cue(segment, ".")}\n${escaped(segment.text.trim())}\n`)].join("\n"),
  txt: (segments) => `${textOf(segments)}\n`,
  json: (segments, facts) => `${JSON.stringify({ ...facts, segments }, dropPictures, 2)}\n`,
};

// Of a cue's text https://www.w3.org/TR/webvtt1/ reads these characters as markup.
const escaped = (text) => text.replace(/[&<>]/g, (character) => ESCAPED[character]);

const dropPictures = (name, value) => (name === "attention" ? undefined : value);

// file: returns {name, segments, facts} of what is downloaded; the name has no suffix.
export function offerDownloads(place, file) {
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", formatMessage("documents.download"));
  place.replaceChildren(...Object.entries(WRITERS).map(([suffix, write]) => {
    const button = element("button", { type: "button", className: "quiet", textContent: `.${suffix}` });
    button.addEventListener("click", () => {
      const { name, segments, facts } = file();
      save(write(segments, facts), `${name}.${suffix}`);
    });
    return button;
  }));
}

function save(text, download) {
  const href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  element("a", { href, download }).click();
  URL.revokeObjectURL(href);
}
