"""The line on the terminal says how far a run is, and the rates of its last second."""

from io import StringIO

from tqdm import tqdm

from loadtest.generator.live import LiveLine
from loadtest.generator.messages import Tally


def test_rates_are_those_of_the_last_second() -> None:
    stream = StringIO()
    with tqdm(total=1.0, file=stream, bar_format="{desc} {percentage:3.0f}%{postfix}") as bar:
        line = LiveLine(bar)
        for quarter in range(1, 21):
            answers = 25 * quarter if quarter <= 12 else 300 + 50 * (quarter - 12)
            tallies = [Tally(answers=answers, tokens=10 * answers, in_flight=2, errors=1)] * 2
            line.update(quarter / 4, quarter / 40, tallies)
        bar.refresh()
    shown = stream.getvalue().rsplit("\r", 1)[-1]
    assert shown.strip() == ("measuring  50%, 400 answers/s, 4000 tokens/s, 4 in flight, 2 errors")
