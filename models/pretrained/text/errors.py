"""What can be wrong with the tokenizer of a foreign model."""


class TokenizerError(Exception):
    """Not to be converted; `problems` lists everything found wrong."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
