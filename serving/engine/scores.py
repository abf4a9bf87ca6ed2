"""How next tokens are decided: what every search reads and answers.

Sampling (greedy decoding is its special case) decides for rows that generate alone, beam search for
groups of rows. A search owns whatever it must remember per row and is told when rows come and move;
it knows nothing of states, graphs or requests that wait.
"""

from dataclasses import dataclass

from serving.engine.states.memory import Array


class Scores:
    """What the step graph says of each row's next token; log-probabilities of the model's own
    distribution.

    top_logp: f32 [rows, window], the likeliest, best first
    top_ids: i64 [rows, window]
    log_normaliser: f32 [rows]; added to log-probabilities it gives the model's logits
    attention: f32 [rows, heads, source]; None unless a row wants it
    edited: None until a processor has changed a row
    """

    def __init__(
        self,
        scored: Array,
        top_logp: Array,
        top_ids: Array,
        log_normaliser: Array,
        edited: "Edited | None" = None,
    ) -> None:
        """scored: f32 [rows, vocabulary], what the graph writes of all tokens that it scores."""
        self.scored = scored
        self.top_logp, self.top_ids, self.log_normaliser = top_logp, top_ids, log_normaliser
        self.attention: Array | None = None
        self.edited = edited

    @property
    def num_rows(self) -> int:
        return len(self.top_ids)

    @property
    def logp(self) -> Array:
        """f32 [rows, vocabulary]; -inf of what is not scored."""
        return self.scored

    @property
    def fewest_scored(self) -> int:
        """How many tokens are scored in any row at least."""
        return int(self.scored.shape[1])

    def of_tokens(self, rows: Array, token_ids: Array) -> Array:
        """f32 [len(rows)]: of each row that of one token."""
        values: Array = self.logp[rows, token_ids]
        return values


@dataclass(slots=True)
class Edited:
    """The rows that processors have changed.

    is_edited: bool [rows]
    is_raised: bool [rows]; of these, rows in which some token may have risen
    is_dead: bool [rows]; of these, rows in which no token is left
    logp: f32 [rows, vocabulary]; of edited rows the scores to choose by, not normalised, -inf where
        a token must not come; of other rows anything
    """

    is_edited: Array
    is_raised: Array
    is_dead: Array
    logp: Array


@dataclass(slots=True)
class Choices:
    """token_ids: i64 [rows]; logprobs: f32 [rows], the chosen tokens' log-probabilities."""

    token_ids: Array
    logprobs: Array
