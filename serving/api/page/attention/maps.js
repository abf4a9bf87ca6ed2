// Reads attention maps of the server. Special tokens have no text there.

import { formatMessage } from "../common/messages.js";
import { Weights } from "./weights.js";

// Returns queries for all layers and heads of all kinds that a model has.
export const queriesOf = ({ attention }) => Object.keys(attention).map((kind) => ({ kind }));

export const weightsOf = ({ kind, layers, heads, row_tokens, column_tokens, weights }) => new Weights({
  kind,
  rows: row_tokens.map((token, place) => named(token, place, row_tokens, kind)),
  columns: column_tokens.map((token, place) => named(token, place, column_tokens, kind)),
  layers,
  heads,
  weights: Float32Array.from(weights.flat(3)),
});

// Tokens without text are named by what they are for.
function named(token, place, tokens, kind) {
  if (token) return token.replaceAll("\n", "⏎");
  if (place === 0 && kind === "decoder") return formatMessage("attention.token.start");
  return formatMessage(place === tokens.length - 1 ? "attention.token.end" : "attention.token.language");
}
