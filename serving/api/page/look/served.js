// Reads attention as the server tells it: of tokens, of which special ones have no text.

import { Weights } from "./weights.js";

// What to ask for so that all layers and heads are told, of the kinds that each of these models has.
export function looksOf(models) {
  const [first = {}, ...others] = models.map(({ attention }) => attention);
  const kinds = Object.keys(first).filter((kind) => others.every((attention) => kind in attention));
  return kinds.map((kind) => ({ kind }));
}

export const viewOf = ({ kind, layers, heads, row_tokens, column_tokens, weights }) => new Weights({
  kind,
  rows: row_tokens.map((token, place) => named(token, place, row_tokens, kind)),
  columns: column_tokens.map((token, place) => named(token, place, column_tokens, kind)),
  layers,
  heads,
  weights: Float32Array.from(weights.flat(3)),
});

// A piece that begins a word has a low line, as SentencePiece writes it.
function named(token, place, tokens, kind) {
  if (token) return token.replaceAll(" ", "▁").replaceAll("\n", "⏎");
  if (place === 0 && kind === "decoder") return "<start>";
  return place === tokens.length - 1 ? "<end>" : "<tag>";
}
