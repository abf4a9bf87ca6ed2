"""Says which requests' tokens a device chooses. That depends on the request alone, so that its
tokens do not depend on its company: a device draws other tokens, as likely ones, than the host.
"""

from serving.bundle.manifest import MAX_TOP_K
from serving.engine.generation import Generation
from serving.parameters import NO_PROCESSORS

SERVED_FILTERS = {"top_k", "top_p", "min_p"}


def can_choose(generation: Generation, vocab_size: int) -> bool:
    """Tell whether the select graph can do all that a request asks for."""
    request, sampling = generation.request, generation.request.sampling
    is_searched = request.beam is not None
    is_masked = request.constraint is not None or request.processors.allowed_ids is not None
    can_filter = sampling.filters.keys() <= SERVED_FILTERS
    can_rank = sampling.top_k <= MAX_TOP_K or sampling.top_k >= vocab_size
    can_draw = sampling.is_greedy or (can_filter and can_rank)
    return can_draw and not is_searched and not is_masked


def is_plain(generation: Generation) -> bool:
    """Tell whether it takes its likeliest token at every step, whatever came before."""
    request = generation.request
    is_greedy = request.sampling.is_greedy and request.beam is None and request.constraint is None
    return is_greedy and request.processors == NO_PROCESSORS
