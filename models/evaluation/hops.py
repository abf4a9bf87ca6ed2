"""Draws what the hops of an encoder look at (Lin et al. 2017, figure 2)."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from tokenizers import Tokenizer

from models.arrays import Array
from models.batch import device_of
from models.contract import Encoder

INCHES = (0.42, 0.32)  # a token's column, a hop's row
MARGINS = (1.5, 1.1)
DOTS_PER_INCH = 90


def draw_hops(
    model: Encoder, tokenizer: Tokenizer, rows: Sequence[Sequence[int]], path: Path
) -> bool:
    """Draw one picture for each text, complete with its special tokens, below the other; a row for
    each hop, a column for each token. Returns whether the model has any hops.
    """
    weights = [hops_of(model, row) for row in rows]
    found = [(row, hops) for row, hops in zip(rows, weights, strict=True) if hops is not None]
    if not found:
        return False
    width = MARGINS[0] + INCHES[0] * max(map(len, rows))
    height = sum(MARGINS[1] + INCHES[1] * len(hops) for _, hops in found)
    figure, axes = plt.subplots(len(found), 1, figsize=(width, height), squeeze=False)
    for [axis], (row, hops) in zip(axes, found, strict=True):
        axis.imshow(hops, cmap="Greys", vmin=0, aspect="auto")
        tokens = [_written(tokenizer, token_id) for token_id in row]
        axis.set_xticks(range(len(row)), tokens, rotation=60, ha="right", fontsize=8)
        axis.set_yticks(range(len(hops)), [f"hop {n + 1}" for n in range(len(hops))], fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=DOTS_PER_INCH)
    plt.close(figure)
    return True


@torch.inference_mode()
def hops_of(model: Encoder, row: Sequence[int]) -> Array | None:
    """Compute the weights [hops, tokens] of one text; None of a model without hops."""
    device = device_of(model)
    ids, lengths = torch.tensor([row], device=device), torch.tensor([len(row)], device=device)
    weights = model.hops(ids, lengths)
    return None if weights is None else weights[0].float().cpu().numpy()


def _written(tokenizer: Tokenizer, token_id: int) -> str:
    """Write a token as it stands in a text; a special one by its name."""
    return tokenizer.decode([token_id]).strip() or tokenizer.id_to_token(token_id) or "?"
