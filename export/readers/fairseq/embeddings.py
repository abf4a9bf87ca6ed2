"""Knows what fairseq calls word embeddings, and where its tables of positions begin."""

FIRST_POSITION = 2  # positions count on from the padding's id, which is 1
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
