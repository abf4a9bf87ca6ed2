"""Imported by Ray's workers while they wait for work: what Serve's controller and replicas share.

Garbage collection is off until the worker knows which of them it is: imports make next to no
garbage, and looking for it takes an eighth of their time.
"""

import gc

gc.disable()

import ray.serve._private.controller  # noqa: E402, F401
