"""Functions of recurrent cells in the domain `attendant`. See `export.graph.functions`."""

from export.graph.functions import OPSETS

# x and u: f32 [batch, 4 * dim], the products of a cell's input and of its hidden state, in blocks
# input, forget, new, output; memory: f32 [batch, dim]. See `models.layers.equations.lstm`.
LSTM_CELL = f"""
<{OPSETS}>
LstmCell (x, u, memory) => (hidden, next_memory) {{
    gates = Add (x, u)
    i, f, g, o = Split <axis = -1, num_outputs = 4> (gates)
    input = Sigmoid (i)
    candidate = Tanh (g)
    fresh = Mul (input, candidate)
    forget = Sigmoid (f)
    kept = Mul (forget, memory)
    next_memory = Add (kept, fresh)
    output = Sigmoid (o)
    squashed = Tanh (next_memory)
    hidden = Mul (output, squashed)
}}
"""

# x and u: f32 [batch, 3 * dim], in blocks reset, update, new; hidden: f32 [batch, dim].
GRU_CELL = f"""
<{OPSETS}>
GruCell (x, u, hidden) => (next) {{
    x_reset, x_update, x_new = Split <axis = -1, num_outputs = 3> (x)
    u_reset, u_update, u_new = Split <axis = -1, num_outputs = 3> (u)
    r = Add (x_reset, u_reset)
    reset = Sigmoid (r)
    z = Add (x_update, u_update)
    update = Sigmoid (z)
    recurrent = Mul (reset, u_new)
    n = Add (x_new, recurrent)
    new = Tanh (n)
    difference = Sub (hidden, new)
    kept = Mul (update, difference)
    next = Add (new, kept)
}}
"""

# The GRU that resets before its product, in two parts. u: f32 [batch, 2 * dim], of reset and
# update; u_new: f32 [batch, dim], the product of what GruReset returns.
GRU_RESET = f"""
<{OPSETS}>
GruReset (x, u, hidden) => (recurrent) {{
    x_reset, x_update, x_new = Split <axis = -1, num_outputs = 3> (x)
    u_reset, u_update = Split <axis = -1, num_outputs = 2> (u)
    r = Add (x_reset, u_reset)
    reset = Sigmoid (r)
    recurrent = Mul (reset, hidden)
}}
"""
GRU_UPDATE = f"""
<{OPSETS}>
GruUpdate (x, u, u_new, hidden) => (next) {{
    x_reset, x_update, x_new = Split <axis = -1, num_outputs = 3> (x)
    u_reset, u_update = Split <axis = -1, num_outputs = 2> (u)
    z = Add (x_update, u_update)
    update = Sigmoid (z)
    n = Add (x_new, u_new)
    new = Tanh (n)
    difference = Sub (hidden, new)
    kept = Mul (update, difference)
    next = Add (new, kept)
}}
"""

# gates: f32 [batch, 1, 2 * dim], of the forget gate and of the new value; memory: [batch, 1, dim].
SSRU_CELL = f"""
<{OPSETS}>
SsruCell (gates, memory) => (out, next_memory) {{
    forget, new = Split <axis = -1, num_outputs = 2> (gates)
    difference = Sub (memory, new)
    share = Sigmoid (forget)
    kept = Mul (share, difference)
    next_memory = Add (new, kept)
    out = Relu (next_memory)
}}
"""
