"""Functions of the domain `attendant`, which graphs call and models contain.

The body of a function is a chain of ONNX Runtime's own operators. Where the library of native
kernels (`serving/kernels`) is loaded, ONNX Runtime runs its kernel of the same name instead;
elsewhere it inlines the body. So a bundle runs anywhere.
"""

from functools import cache

import numpy as np
import onnx.parser
import onnx_ir as ir

DOMAIN = "attendant"
OPSETS = f'opset_import: ["" : 23, "com.microsoft" : 1], domain: "{DOMAIN}"'

# x: f32 [..., inputs], weight: int8 [inputs, outputs], scale and bias: f32 [outputs]. Each row of x
# is quantised by its largest magnitude; in a row of zeros 0 / 0 gives any level, and the range, 0,
# makes the product 0 again. In a row with NaN or infinity the difference x - x is NaN, and with it
# the range and the outputs: ReduceMax and levels lose it. See `export/graph/quantise.py`.
QUANTIZED_LINEAR = f"""
<{OPSETS}>
QuantizedLinear (x, weight, scale, bias) => (y) {{
    zero_point = Constant <value = uint8 {{128}}> ()
    step = Constant <value = float {{{float(np.float32(1 / 127))!r}}}> ()
    last_axis = Constant <value = int64[1] {{-1}}> ()
    magnitudes = Abs (x)
    largest = ReduceMax <keepdims = 1> (magnitudes, last_axis)
    zeros = Sub (x, x)
    zero = ReduceSum <keepdims = 1> (zeros, last_axis)
    range = Add (largest, zero)
    normalised = Div (x, range)
    levels = QuantizeLinear (normalised, step, zero_point)
    sums = com.microsoft.MatMulIntegerToFloat (levels, weight, step, scale, zero_point)
    product = Mul (sums, range)
    y = Add (product, bias)
}}
"""

# x: f32 [..., inputs], levels: uint8 [outputs, blocks, 16 * bits / 8] with zero at 128, or of 4
# bits at 8; scale: f32 [outputs, blocks], bias: f32 [outputs], optional. N is the number of outputs
# and K that of inputs. Of rows with NaN the operator has finite outputs: they become NaN, as above.
# See `export/graph/blocks.py`.
BLOCK_QUANTIZED_LINEAR = f"""
<{OPSETS}>
BlockQuantizedLinear <N, K, bits> (x, levels, scale, bias) => (y) {{
    product = com.microsoft.MatMulNBits <
        N: int = @N, K: int = @K, bits: int = @bits, block_size = 16, accuracy_level = 4
    > (x, levels, scale, "", "", bias)
    last_axis = Constant <value = int64[1] {{-1}}> ()
    zeros = Sub (x, x)
    zero = ReduceSum <keepdims = 1> (zeros, last_axis)
    y = Add (product, zero)
}}
"""

_HEADS = (
    "num_heads: int = @num_heads, kv_num_heads: int = @kv_num_heads, scale: float = @scale,"
    " softcap: float = @softcap"
)

# qkv: f32 [batch, tokens, (num_heads + 2 * kv_num_heads) * head_dim]; past_key, past_value: f32
# [batch, kv_num_heads, capacity, head_dim]; total_lengths: int32 [batch], with the new tokens;
# capacity: int32 [1]. Optional: cos and sin of RoPE, f32 [positions, rotary_dim / 2], a bias of
# scores, f32 [batch, heads, 1, capacity], and sinks, f32 [num_heads]: scores that have no values.
SELF_ATTENTION = f"""
<{OPSETS}>
SelfAttention <num_heads, kv_num_heads, scale, do_rotary, local_window_size, softcap>
(qkv, past_key, past_value, total_lengths, capacity, cos, sin, bias, sinks)
=> (mixed, key, value) {{
    one = Constant <value = int32 {{1}}> ()
    last_positions = Sub (total_lengths, one)
    mixed, key, value = com.microsoft.GroupQueryAttention <
        {_HEADS}, do_rotary: int = @do_rotary,
        local_window_size: int = @local_window_size
    > (qkv, "", "", past_key, past_value, last_positions, capacity, cos, sin, "", bias, sinks)
}}
"""

# The same with keys and values in fp16. The kernel rounds new ones before a token attends to them,
# the operator attends to them unrounded in the run that adds them.
FP16_SELF_ATTENTION = f"""
<{OPSETS}>
Fp16SelfAttention
<num_heads, kv_num_heads, scale, do_rotary, local_window_size, softcap>
(qkv, past_key, past_value, total_lengths, capacity, cos, sin, bias, sinks)
=> (mixed, key, value) {{
    one = Constant <value = int32 {{1}}> ()
    last_positions = Sub (total_lengths, one)
    past_keys = Cast <to = 1> (past_key)
    past_values = Cast <to = 1> (past_value)
    mixed, keys, values = com.microsoft.GroupQueryAttention <
        {_HEADS}, do_rotary: int = @do_rotary,
        local_window_size: int = @local_window_size
    > (qkv, "", "", past_keys, past_values, last_positions, capacity, cos, sin, "", bias, sinks)
    key = Cast <to = 10> (keys)
    value = Cast <to = 10> (values)
}}
"""

# query: f32 [batch, 1, num_heads * head_dim]; keys, values: f32 [batch, kv_num_heads, source,
# head_dim]; lengths: int32 [batch]; no_keys: int64 [2], 0 and kv_num_heads * head_dim. ONNX
# Runtime's operator takes keys and values as a past, with no new keys. With a `softcap`
# that is not 0, scores become softcap * tanh(score / softcap).
_AS_PAST = """
    starts = Constant <value = int64[2] {0, 0}> ()
    axes = Constant <value = int64[2] {1, 2}> ()
    nothing = Slice (scaled, starts, no_keys, axes)
    shape = Shape <start = 2, end = 3> (keys)
    source = Cast <to = 6> (shape)
    one = Constant <value = int32 {1}> ()
    last_positions = Sub (lengths, one)
"""

CROSS_ATTENTION = f"""
<{OPSETS}>
CrossAttention <num_heads, kv_num_heads, scale, softcap>
(query, keys, values, lengths, no_keys) => (found) {{
    scaled = Identity (query)
    {_AS_PAST}
    found = com.microsoft.GroupQueryAttention <{_HEADS}>
        (scaled, nothing, nothing, keys, values, last_positions, source)
}}
"""

# The same with keys and values of int8 levels, which the operator uses as numbers: key_step and
# value_step, f32 [batch, 1, num_heads * head_dim], the values of a level, are folded into the query
# and into the result. The operator puts keys and values out too: unchanged.
INT8_CROSS_ATTENTION = f"""
<{OPSETS}>
Int8CrossAttention <num_heads, kv_num_heads, scale, softcap>
(query, keys, values, lengths, no_keys, key_step, value_step) => (found, next_keys, next_values) {{
    scaled = Mul (query, key_step)
    {_AS_PAST}
    unit = Constant <value = float[1] {{1}}> ()
    mixed, next_keys, next_values = com.microsoft.GroupQueryAttention <
        {_HEADS}, k_quant_type = "PER_TENSOR", v_quant_type = "PER_TENSOR", kv_cache_bit_width = 8
    > (scaled, nothing, nothing, keys, values, last_positions, source,
        "", "", "", "", "", unit, unit)
    found = Mul (mixed, value_step)
}}
"""


def weights_of_source(
    kv_heads: int, group: int, head_dim: int, keys: str, *, is_capped: bool = False
) -> str:
    """Return the function that gives the weights of cross-attention, f32 [batch, heads, source], 0
    beyond a row's length.

    query: f32 [batch, 1, heads * head_dim], multiplied by key_step if keys are levels; keys:
    float32 or int8, as `keys` says, [batch, kv_heads, source, head_dim]; lengths: int32 [batch].
    is_capped: scores become softcap * tanh(score / softcap). The softmax must not depend on how far
    the rows are padded: CumSum adds one position after the other.
    """
    name = "Int8CrossAttentionWeights" if keys == "int8" else "CrossAttentionWeights"
    capped = """
    cap = Constant <value_float: float = @softcap> ()
    share = Div (of_keys, cap)
    limited = Tanh (share)
    scores = Mul (limited, cap)"""
    scores = capped if is_capped else "scores = Identity (of_keys)"
    return f"""
<{OPSETS}>
{name} <num_heads, kv_num_heads, scale, softcap> (query, keys, lengths) => (weights) {{
    factor = Constant <value_float: float = @scale> ()
    scaled = Mul (query, factor)
    apart = Constant <value = int64[5] {{0, {kv_heads}, {group}, 1, {head_dim}}}> ()
    queries = Reshape (scaled, apart)
    floats = Cast <to = 1> (keys)
    of_group = Constant <value = int64[1] {{2}}> ()
    shared = Unsqueeze (floats, of_group)
    products = Mul (queries, shared)
    last_axis = Constant <value = int64[1] {{-1}}> ()
    sums = ReduceSum <keepdims = 0> (products, last_axis)
    together = Constant <value = int64[3] {{0, {kv_heads * group}, -1}}> ()
    of_keys = Reshape (sums, together)
    {scores}
    last = Constant <value = int64 {{-1}}> ()
    is_number = Equal (scores, scores)
    ones = Cast <to = 6> (is_number)
    positions = CumSum (ones, last)
    of_heads = Constant <value = int64[2] {{1, 2}}> ()
    ends = Unsqueeze (lengths, of_heads)
    within = LessOrEqual (positions, ends)
    lowest = Constant <value = float {{-1e30}}> ()
    zero = Constant <value = float {{0}}> ()
    own = Where (within, scores, lowest)
    greatest = ReduceMax <keepdims = 1> (own, last_axis)
    below = Sub (own, greatest)
    exponentials = Exp (below)
    likelihood = Where (within, exponentials, zero)
    running = CumSum (likelihood, last)
    total = ReduceMax <keepdims = 1> (running, last_axis)
    weights = Div (likelihood, total)
}}
"""


# qkv: f32 [tokens, (num_heads + 2 * kv_num_heads) * head_dim], the tokens of rows packed row after
# row; lengths: int32 [batch]; token_at: int32 [batch, source], the place of each padded token among
# the packed ones; place_of: int64 [tokens], the places of the packed tokens among the padded ones;
# optional bias: f32 [1 or batch, num_heads, source, source].
ENCODER_ATTENTION = f"""
<{OPSETS}>
EncoderAttention <num_heads, kv_num_heads, scale, softcap>
(qkv, lengths, token_at, place_of, bias) => (mixed) {{
    apart = Gather <axis = 0> (qkv, token_at)
    shape = Shape <start = 1, end = 2> (token_at)
    source = Cast <to = 6> (shape)
    one = Constant <value = int32 {{1}}> ()
    last_positions = Sub (lengths, one)
    found = com.microsoft.GroupQueryAttention <{_HEADS}, causal = 0>
        (apart, "", "", "", "", last_positions, source, "", "", "", bias)
    flat = Flatten <axis = 2> (found)
    mixed = Gather <axis = 0> (flat, place_of)
}}
"""


def quantize_memory(kv_heads: int, head_dim: int) -> str:
    """Return the function that quantises keys and values of the source in int8, each channel of a
    row by its largest magnitude.

    keys_values: f32 [tokens, 2 * kv_heads * head_dim], packed as for EncoderAttention. It gives the
    levels of keys and of values, int8 [batch, kv_heads, source, head_dim], and the values of a
    level, f32 [batch, 1, kv_heads * head_dim]. In a channel of zeros 0 / 0 gives any level; the
    step, 0, makes it 0 again. The step of a channel with NaN or infinity is NaN.
    """
    dim = kv_heads * head_dim
    return f"""
<{OPSETS}>
QuantizeMemory <kv_num_heads>
(keys_values, lengths, token_at) => (keys, values, key_step, value_step) {{
    apart = Gather <axis = 0> (keys_values, token_at)
    source_axis = Constant <value = int64[1] {{1}}> ()
    magnitudes = Abs (apart)
    maximum = ReduceMax <keepdims = 1> (magnitudes, source_axis)
    zeros = Sub (apart, apart)
    sum_of_zeros = ReduceSum <keepdims = 1> (zeros, source_axis)
    largest = Add (maximum, sum_of_zeros)
    normalised = Div (apart, largest)
    unit = Constant <value = float {{{float(np.float32(1 / 127))!r}}}> ()
    zero = Constant <value = int8 {{0}}> ()
    levels = QuantizeLinear (normalised, unit, zero)
    by_heads = Constant <value = int64[4] {{0, 0, {2 * kv_heads}, {head_dim}}}> ()
    split = Reshape (levels, by_heads)
    heads_first = Transpose <perm = [0, 2, 1, 3]> (split)
    halves = Constant <value = int64[2] {{{kv_heads}, {kv_heads}}}> ()
    keys, values = Split <axis = 1> (heads_first, halves)
    steps = Mul (largest, unit)
    dims = Constant <value = int64[2] {{{dim}, {dim}}}> ()
    key_step, value_step = Split <axis = 2> (steps, dims)
}}
"""


def token_choice(number: int, num_blocks: int | None, block: int) -> str:
    """Return the function that finds the likeliest tokens of f32 scores [batch, columns].

    It gives the log-probabilities and the columns of `number` tokens, the likeliest first and of
    equals the lowest column, and log(sum(exp(scores))) of each row. If `wants_logp`, bool [], is
    false, the greatest score takes the place of this sum, which needs all exponentials. num_blocks:
    if given, search only the blocks of columns with the greatest maxima. TopK takes the first of
    equals, and so does this, because the blocks are put in order first.
    """
    if num_blocks is None:
        search = "best, top_ids = TopK (scores, count)"
    else:
        search = f"""
    blocked = Constant <value = int64[3] {{0, {num_blocks}, {block}}}> ()
    blocks = Reshape (scores, blocked)
    greatest = ReduceMax <keepdims = 0> (blocks, last_axis)
    maxima, found = TopK (greatest, count)
    order, places_of_order = TopK <largest = 0> (found, count)
    indices = Unsqueeze (order, last_axis)
    chosen = GatherND <batch_dims = 1> (blocks, indices)
    flattened = Constant <value = int64[2] {{0, {number * block}}}> ()
    flat = Reshape (chosen, flattened)
    best, places = TopK (flat, count)
    size = Constant <value = int64 {{{block}}}> ()
    block = Div (places, size)
    own = GatherElements <axis = 1> (order, block)
    skipped = Sub (own, block)
    offset = Mul (skipped, size)
    top_ids = Add (places, offset)"""
    return f"""
<{OPSETS}>
TokenChoice <number> (scores, wants_logp) => (top_logp, top_ids, log_normaliser) {{
    count = Constant <value = int64[1] {{{number}}}> ()
    last_axis = Constant <value = int64[1] {{-1}}> ()
    {search}
    start = Constant <value = int64[1] {{0}}> ()
    end = Constant <value = int64[1] {{1}}> ()
    normaliser = If (wants_logp) <
        then_branch = normalised () => (shift) {{
            logp = LogSoftmax <axis = -1> (scores)
            best_score = Slice (best, start, end, last_axis)
            best_id = Slice (top_ids, start, end, last_axis)
            best_logp = GatherElements <axis = 1> (logp, best_id)
            shift = Sub (best_score, best_logp)
        }},
        else_branch = greatest () => (largest) {{
            largest = Slice (best, start, end, last_axis)
        }}
    >
    top_logp = Sub (best, normaliser)
    log_normaliser = Squeeze (normaliser, last_axis)
}}
"""


def attention_to_states(key_dim: int, padding: int, is_additive: bool) -> str:
    """Return the function that attends to the states of a recurrent encoder.

    query: f32 [batch, key_dim]; keys: f32 [batch, source, key_dim]; values: f32 [batch, source,
    value_dim]; lengths: int32 [batch]; score_weight: f32 [key_dim]. It gives the weights, f32
    [batch, source], 0 beyond a row's length, and the context, f32 [batch, value_dim]. Scores are
    score_weight . tanh(query + key), or else scale * query . key. padding: zeros after products, so
    that their sum does not depend on where they lie. The softmax must not depend on how far the
    rows are padded: CumSum adds one position after the other.
    """
    if is_additive:
        name, inputs = "AdditiveAttention", "query, keys, values, lengths, score_weight"
        products = """
    added = Add (expanded, keys)
    inner = Tanh (added)
    products = Mul (inner, score_weight)"""
    else:
        name, inputs = "DotAttention", "query, keys, values, lengths"
        products = "products = Mul (expanded, keys)"
    padded = (
        f"""
    pads = Constant <value = int64[2] {{0, {padding}}}> ()
    nothing = Constant <value = float {{0}}> ()
    padded = Pad (products, pads, nothing, last_axis)"""
        if padding
        else "padded = Identity (products)"
    )
    return f"""
<{OPSETS}>
{name} <scale> ({inputs}) => (weights, context) {{
    one = Constant <value = int64[1] {{1}}> ()
    last_axis = Constant <value = int64[1] {{-1}}> ()
    last = Constant <value = int64 {{-1}}> ()
    along = Constant <value = int64 {{1}}> ()
    expanded = Unsqueeze (query, one)
    {products}
    {padded}
    sums = ReduceSum <keepdims = 0> (padded, last_axis)
    factor = Constant <value_float: float = @scale> ()
    scores = Mul (sums, factor)
    is_number = Equal (scores, scores)
    ones = Cast <to = 6> (is_number)
    positions = CumSum (ones, along)
    ends = Unsqueeze (lengths, one)
    within = LessOrEqual (positions, ends)
    lowest = Constant <value = float {{-1e30}}> ()
    zero = Constant <value = float {{0}}> ()
    own = Where (within, scores, lowest)
    greatest = ReduceMax <keepdims = 1> (own, last_axis)
    below = Sub (own, greatest)
    exponentials = Exp (below)
    likelihood = Where (within, exponentials, zero)
    running = CumSum (likelihood, last)
    total = ReduceMax <keepdims = 1> (running, last_axis)
    weights = Div (likelihood, total)
    row = Unsqueeze (weights, one)
    mixed = MatMul (row, values)
    context = Squeeze (mixed, one)
}}
"""


@cache
def parse_function(text: str) -> ir.Function:
    """Return the function that a text in ONNX's notation defines."""
    return ir.serde.deserialize_function(onnx.parser.parse_function(text))
