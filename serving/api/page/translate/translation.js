// A complete translation; asks the server for its attention, alternatives, scores and quality.

import { formatMessage } from "../common/messages.js";
import { Refused, post } from "../common/server.js";
import { queriesOf, weightsOf } from "../attention/maps.js";
import { parts, sentencesOf } from "./words.js";

const MOST_ALTERNATIVES = 6;

export class Translation {
  // source: the language of the text. sentences: {source, start, target, map, heads} of each: its
  // source, where that starts in the text, its translation, its attention, and that by layer and
  // head. All but target are null until they are asked for.
  constructor(request, source, targets) {
    this.request = request;
    this.source = source;
    this.sentences = targets.map((target) => ({ source: null, start: null, target, map: null, heads: null }));
    if (targets.length === 1) Object.assign(this.sentences[0], { source: request.q, start: 0 });
    this.reading = null;
    this.estimating = null;
  }

  get text() {
    return this.sentences.map(({ target }) => target).join("");
  }

  async mapOf(sentence) {
    if (!sentence.map && sentence.source && sentence.isChosen) sentence.map = await this.mapOfChosen(sentence);
    if (!sentence.map) await (this.reading ??= this.readMaps());
    return sentence.map;
  }

  // Asks once for the attention of all sentences; the answer has their sources too.
  async readMaps() {
    const { request, source, sentences } = this;
    const { attention } = await post("translate", { ...request, source, return_attention: true });
    const sources = sentencesOf(request.q, attention.map((sentence) => sentence.source_words));
    if (attention.length !== sentences.length) throw new Error(formatMessage("attention.unknown"));
    let start = 0;
    attention.forEach((map, number) => {
      const source = sources[number];
      Object.assign(sentences[number], { source: source.trim(), start: start + source.search(/\S|$/) });
      sentences[number].map ??= map;
      start += source.length;
    });
  }

  // A sentence that the user has changed is scored, not translated again.
  async mapOfChosen(sentence) {
    return this.attentionOf(sentence, this.request.model, true);
  }

  // Returns attention by layer and head; without a chosen model, of the first that could translate.
  async headsOf(sentence, models) {
    if (sentence.heads) return sentence.heads;
    const model = models.find((model) => this.couldBeBy(model));
    if (!model || !queriesOf(model).length) throw new Refused(formatMessage("attention.unavailable"));
    if (!sentence.source) await this.mapOf(sentence);
    const maps = await this.attentionOf(sentence, model.id, queriesOf(model));
    sentence.heads = { model: model.id, views: maps.map(weightsOf) };
    return sentence.heads;
  }

  couldBeBy({ id, task, source_languages, target_languages }) {
    const { request: { model, target }, source } = this;
    if (model) return id === model;
    return task === "translate" && source_languages.includes(source) && target_languages.includes(target);
  }

  async attentionOf({ source: q, target: text }, model, return_attention) {
    const { request: { target }, source } = this;
    const { scores: [score] } = await post("score", { q, translations: text.trim(), source, target, ...(model && { model }), return_attention });
    return score.attention;
  }

  // Returns other continuations from a word of a sentence: {text, word, rest} of each. The server may go on
  // within a word, so they are told apart by the first whole word that differs.
  async waysFrom(sentence, start, signal) {
    if (!sentence.source) await this.mapOf(sentence);
    const { source: q, target } = sentence;
    const target_prefix = target.slice(0, start);
    const answer = await post("translate", {
      ...this.request, q, source: this.source, target_prefix, alternatives: MOST_ALTERNATIVES, alternatives_at_prefix: true,
    }, signal);
    const ways = new Map();
    for (const text of [answer.translatedText, ...answer.alternatives]) {
      const way = wayFrom(target.trim(), text.trim(), this.request.target);
      if (way && !ways.has(way.word)) ways.set(way.word, way);
    }
    return [...ways.values()];
  }

  // Asks once how good the translation is, unless the user has changed it.
  async quality() {
    if (this.sentences.some(({ isChosen }) => isChosen)) throw new Refused(formatMessage("translate.quality.changed"));
    const { request, source } = this;
    return (await (this.estimating ??= post("translate", { ...request, source, quality: true }))).quality;
  }

  startOf(number) {
    return this.sentences.slice(0, number).reduce((total, { target }) => total + target.length, 0);
  }

  choose(sentence, text) {
    const [before] = sentence.target.match(/^\s*/);
    const [after] = sentence.target.match(/\s*$/);
    Object.assign(sentence, { target: before + text.trim() + after, map: null, heads: null, isChosen: true });
  }
}

// Returns {text, word, rest} of a text that goes on otherwise than a target; null if it is the same.
function wayFrom(target, text, language) {
  const targetParts = parts(target, language);
  const textParts = parts(text, language);
  const different = textParts.findIndex((part, number) => part.text !== targetParts[number]?.text);
  if (different < 0) return null;
  const first = textParts.findIndex(({ isWord }, number) => number >= different && isWord);
  const place = first < 0 ? different : first;
  const end = textParts[place + 1]?.start ?? text.length;
  const start = textParts[different].isWord ? textParts[place].start : textParts[different].start;
  return { text, word: text.slice(start, end).trimStart(), rest: text.slice(end) };
}
