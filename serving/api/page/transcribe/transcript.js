// What a server has written down of a recording so far. Knows nothing of the page.

const SHORTEST = 0.1; // seconds that a word is shown as spoken, at least

export class Transcript {
  constructor() {
    this.segments = []; // as in `verbose_json`, with their words
    this.words = []; // of all segments
    this.windows = []; // {start, end, spectrogram, words}
    this.facts = {}; // language, language_probability and duration, once the server has told them
  }

  // event: of the stream.
  add({ type, ...event }) {
    if (type === "transcript.text.segment") {
      this.segments.push(event);
      for (const word of event.words ?? []) {
        this.words.push(word);
        this.windowOf(word)?.words.push(word);
      }
    } else if (type === "transcript.window") {
      this.windows.push({ ...event, words: [] });
    } else {
      Object.assign(this.facts, event);
    }
  }

  // Returns the word that is spoken at a time; null in pauses.
  wordAt(seconds) {
    const word = this.words[lastBefore(this.words, seconds)];
    return word && seconds < Math.max(word.end, word.start + SHORTEST) ? word : null;
  }

  windowAt(seconds) {
    return this.windows[lastBefore(this.windows, seconds)] ?? this.windows[0];
  }

  windowOf(word) {
    return this.windows.find(({ start }) => start === word.window_start);
  }
}

// Returns the number of the last of some spans, in order, that has begun at a time; -1 if none has.
function lastBefore(spans, seconds) {
  let [low, high] = [0, spans.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].start <= seconds) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
