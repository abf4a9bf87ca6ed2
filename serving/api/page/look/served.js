// Reads attention as the server tells it: of tokens, of which special ones have no text.

import { Weights } from "./weights.js";

// What to ask for so that all layers and heads are told, of all kinds that a model has.
export const looksOf = ({ attention }) => Object.keys(attention).map((kind) => ({ kind }));

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
