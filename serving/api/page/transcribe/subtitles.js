// Writes segments as files, and offers these.

import { element } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { cuesOf } from "./cues.js";
import { formatTimestamp } from "./times.js";

const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };

export const textOf = (segments) => segments.map(({ text }) => text.trim()).join("\n");

const timesOf = ({ start, end }, separator) => `${formatTimestamp(start, separator)} --> ${formatTimestamp(end, separator)}`;

const WRITERS = {
  srt: (segments) => cuesOf(segments).map((cue, number) => `${number + 1}\n${timesOf(cue, ",")}\n${withoutArrows(cue.text)}\n\n`).join(""),
  vtt: (segments) => ["WEBVTT\n\n", ...cuesOf(segments).map((cue) => `${timesOf(cue, ".")}\n${escaped(withoutArrows(cue.text))}\n\n`)].join(""),
  txt: (segments) => `${textOf(segments)}\n`,
  json: (segments, facts) => `${JSON.stringify({ ...facts, segments }, dropPictures, 2)}\n`,
};

// A text must not be taken for a line of times.
const withoutArrows = (text) => text.replaceAll("-->", "->");

// Of a cue's text WebVTT (W3C) reads these characters as markup.
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
