"""The error for what a user gave and cannot be used.

Commands show an `InputError`, a `CheckpointError` (`models/checkpoint.py`), a `TrainingConfigError`
(`models/training/config.py`) and an `OSError` as a message. Any other exception is a bug.
"""


class InputError(ValueError):
    """A file or an option cannot be used. The message names it and says what is wrong."""
