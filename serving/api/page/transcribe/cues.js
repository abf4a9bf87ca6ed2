// Divides segments into subtitles: lines that can be read at a glance where words have times, as
// serving/pipelines/transcription/subtitles.py does.

import { places } from "../translate/words.js";

const LINE_CHARACTERS = 42; // two lines of it are the usual limit of subtitles
const NUM_LINES = 2;
const LONG_PAUSE = 3; // seconds within a segment after which a new subtitle begins

// segments: {start, end, text, words} of each; words may be absent. Returns {start, end, text} of each
// subtitle.
export const cuesOf = (segments) => segments.flatMap((segment) => (
  segment.words?.length ? cuesOfWords(spacedWords(segment)) : [{ ...segment, text: segment.text.trim().replace(/\s+/g, " ") }]));

// Returns the words with the spaces and signs before them in the segment's text.
function spacedWords({ text, words }) {
  let end = 0;
  return places(words.map(({ word }) => word), text).map((place, number) => {
    const start = end;
    end = place?.[1] ?? end;
    return { ...words[number], text: place ? text.slice(start, end) : ` ${words[number].word}` };
  });
}

// Each subtitle has at most two lines, and ends before a long pause.
function cuesOfWords(words) {
  const cues = [];
  let lines = [[]];
  for (const word of words) {
    const line = lines.at(-1);
    if (line.length) {
      const isLong = textOf([...line, word]).length > LINE_CHARACTERS;
      if (word.start - line.at(-1).end > LONG_PAUSE || (isLong && lines.length === NUM_LINES)) {
        cues.push(cueOf(lines));
        lines = [[]];
      } else if (isLong) {
        lines.push([]);
      }
    }
    lines.at(-1).push(word);
  }
  return [...cues, cueOf(lines)];
}

const textOf = (words) => words.map(({ text }) => text).join("").trim();

const cueOf = (lines) => ({ start: lines[0][0].start, end: lines.at(-1).at(-1).end, text: lines.map(textOf).join("\n") });
