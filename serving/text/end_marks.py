"""The marks that end sentences and clauses, for all who ask where a sentence ends."""

# That models of most scripts end sentences with, whatever they end the source's with.
SENTENCE_END_MARKS = ".!?…。！？"
# Half-width Japanese, Devanagari, Arabic and Urdu, Armenian, Ethiopic and Burmese.
SCRIPT_END_MARKS = "｡।॥؟۔։።။"
# After these a sentence goes on, but no line that was wrapped and no phrase does.
CLAUSE_END_MARKS = ":;：；"
COMMAS = ",，、"
# May stand after a mark that ends a sentence.
CLOSING_MARKS = ")]}\"'”’»›"
