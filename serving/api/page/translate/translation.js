// Holds a translation that is whole, and asks what else there is to know of it.

import { Refused, post } from "../common/server.js";
import { looksOf, viewOf } from "../look/served.js";
import { sentencesOf } from "./words.js";

const MOST_ALTERNATIVES = 6;

export class Translation {
  // source: the language of the text. sentences: of each {source, target, map, looks}; source, map,
  // what it attends to, and looks, the same by layer and head, are null until somebody asks.
  constructor(request, source, targets) {
    this.request = request;
    this.source = source;
    this.sentences = targets.map((target) => ({ source: null, target, map: null, looks: null }));
    if (targets.length === 1) this.sentences[0].source = request.q;
    this.reading = null;
  }

  get text() {
    return this.sentences.map(({ target }) => target).join("");
  }

  async mapOf(sentence) {
    if (!sentence.map && sentence.source && sentence.isChosen) sentence.map = await this.mapOfChosen(sentence);
    if (!sentence.map) await (this.reading ??= this.readMaps());
    return sentence.map;
  }

  // Asks once for what all sentences attend to; so their sources are known too.
  async readMaps() {
    const { request, source, sentences } = this;
    const { attention } = await post("translate", { ...request, source, return_attention: true });
    const sources = sentencesOf(request.q, attention.map((each) => each.source_words));
    if (attention.length !== sentences.length) throw new Error("Which words came of which is not known here.");
    attention.forEach((map, number) => {
      sentences[number].source = sources[number].trim();
      sentences[number].map ??= map;
    });
  }

  // What somebody has chosen is no longer what the model would say: it is scored as it stands.
  async mapOfChosen(sentence) {
    return this.attentionOf(sentence, this.request.model, true);
  }

  // Tells by layer and head who looks at whom; without a chosen model, as the first that could translate reads it.
  async looksAt(sentence, models) {
    if (sentence.looks) return sentence.looks;
    const model = models.find((each) => this.couldBeBy(each));
    if (!model || !looksOf(model).length) throw new Refused("No model tells what these words look at.");
    if (!sentence.source) await this.mapOf(sentence);
    const told = await this.attentionOf(sentence, model.id, looksOf(model));
    sentence.looks = { model: model.id, views: told.map(viewOf) };
    return sentence.looks;
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

  // Finds other ways to go on from a place of a sentence: {text, shown} of each.
  async waysFrom(sentence, start, signal) {
    if (!sentence.source) await this.mapOf(sentence);
    const { source: q, target } = sentence;
    const target_prefix = target.slice(0, start);
    const answer = await post("translate", {
      ...this.request, q, source: this.source, target_prefix, alternatives: MOST_ALTERNATIVES, alternatives_at_prefix: true,
    }, signal);
    const texts = [...new Set([answer.translatedText, ...answer.alternatives])];
    const said = target_prefix.trim();
    return texts
      .filter((text) => spaced(text) !== spaced(target))
      .map((text) => ({ text, shown: said && text.startsWith(said) ? `…${text.slice(said.length).trimEnd()}` : text }));
  }

  choose(sentence, text) {
    const [before] = sentence.target.match(/^\s*/);
    const [after] = sentence.target.match(/\s*$/);
    Object.assign(sentence, { target: before + text.trim() + after, map: null, looks: null, isChosen: true });
  }
}

const spaced = (text) => text.trim().replace(/\s+/g, " ");
