"""A language model that attends to its last outputs (Daniluk et al. 2017).

"Frustratingly Short Attention Spans in Neural Language Modeling": attention, key-value attention
and key-value-predict attention; `models.layers.recurrent_language_model` has the equations. The
readout has the embedding's size, so that both can share a table; in the paper it has a part's.
"""

from models.architectures.key_value_lm.config import KeyValueLMConfig
from models.layers.recurrent_language_model import AttentiveReadout, RecurrentLanguageModel


class KeyValueLM(RecurrentLanguageModel):
    """Attends in as many dimensions as a part has, as in the paper."""

    def __init__(self, config: KeyValueLMConfig) -> None:
        readout = AttentiveReadout(
            config.hidden_dim,
            config.num_parts,
            attention_dim=config.part_dim,
            readout_dim=config.embedding_dim,
            window=config.window,
        )
        super().__init__(config, readout)
