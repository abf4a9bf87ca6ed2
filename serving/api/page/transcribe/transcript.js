// What a server has written down of a recording so far. Knows nothing of the page.

const SHORTEST = 0.1; // seconds that a word is shown as spoken, at least

export class Transcript {
  constructor() {
    this.segments = []; // as in `verbose_json`, with their words
    this.words = []; // of all segments
    this.windows = []; // as in `verbose_json`, each with its words
    this.facts = {}; // task, language, duration and so on, once all is transcribed
  }

  // event: of the stream. A window comes with its first segment.
  add({ segment, window, type, delta, ...facts }) {
    if (window) this.windows.push({ ...window, words: [] });
    if (segment) this.addSegment(segment);
    else this.facts = facts;
  }

  addSegment(segment) {
    this.segments.push(segment);
    for (const word of segment.words ?? []) {
      this.words.push(word);
      this.windowOf(word)?.words.push(word);
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
