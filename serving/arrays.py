"""Names the type of numpy arrays whose shape and element type stand in a comment beside them."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
