"""Synthetic pairs with names, addresses, code, dates and units.

A frame is a sentence in both languages with slots. A slot is filled with the form that each
language uses.
"""

import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

NAME = re.compile(r"\b[A-Z][a-zà-ÿ]{2,}\b")
MOST_NAMES = 3  # in a text: more are a list of authors or companies


def split_words(words: str) -> tuple[str, ...]:
    return tuple(words.split())


ONSETS = split_words("b b d d f g h j k l l m m n n p r r s s t t v w y z br ch fr kh sh st th tr")
VOWELS = split_words("a a a a e e e i i i o o o u u ai ei ia io ou")
CODAS = ("",) * 8 + split_words("l n r s k m t ck ll nd nn rd rt st tz")
ENDINGS = split_words("a a e i o an ek en er ez in is on ov son sky")


def invented_name(rng: random.Random, begins_with_vowel: bool) -> str:
    """Return a random name of one or two syllables and an ending. A model that never sees a name
    twice learns to copy it letter by letter.
    """
    syllables = [
        rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    if begins_with_vowel:
        syllables.insert(0, rng.choice("AEIOU"))
    return "".join([*syllables, rng.choice(ONSETS), rng.choice(ENDINGS)]).capitalize()


def rename(source: str, target: str, rng: random.Random) -> tuple[str, str] | None:
    """Replace all names that occur on both sides; return None if there are none, or many. A name
    that begins with a vowel is replaced by one that does, because French elides words before it.
    """
    shared = {*NAME.findall(source)} & {*NAME.findall(target)}
    if not 0 < len(shared) <= MOST_NAMES:
        return None
    names = {name: _instead_of(name, rng) for name in sorted(shared)}

    def other(match: re.Match[str]) -> str:
        return names.get(match.group(), match.group())

    return NAME.sub(other, source), NAME.sub(other, target)


def _instead_of(name: str, rng: random.Random) -> str:
    """Return a name, and now and then a first and a last name."""
    first = invented_name(rng, name[0] in "AEIOU")
    return f"{first} {invented_name(rng, rng.random() < 0.2)}" if rng.random() < 0.3 else first


Filler = tuple[str, str]  # in the source and in the target


class Frames(NamedTuple):
    """Sentences with slots in English and French, and lists of fillers."""

    sentences: tuple[Filler, ...]
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    words: tuple[str, ...]


TRAINING = Frames(
    sentences=(
        ("{name} will call you on {date}.", "{name} vous appellera le {date}."),
        ("My name is {name}.", "Je m'appelle {name}."),
        ("Do you know {name}?", "Connaissez-vous {name} ?"),
        ("{name} and {name2} live in Paris.", "{name} et {name2} habitent à Paris."),
        ("Please write to {email}.", "Veuillez écrire à {email}."),
        ("Send it to {email} before {date}.", "Envoyez-le à {email} avant le {date}."),
        ("See {url} for details.", "Voir {url} pour plus de détails."),
        ("You can download it from {url}.", "Vous pouvez le télécharger depuis {url}."),
        ("Run {code} and wait.", "Lancez {code} et attendez."),
        ("The command {code} failed.", "La commande {code} a échoué."),
        ("Open the file {file}.", "Ouvrez le fichier {file}."),
        ("The meeting is at {time}.", "La réunion est à {time}."),
        ("The train leaves at {time} on {date}.", "Le train part à {time} le {date}."),
        ("It weighs {number} kg.", "Il pèse {number} kg."),
        ("It is {number} km away.", "C'est à {number} km."),
        ("Take {number} mg a day.", "Prenez {number} mg par jour."),
        ("It costs {price}.", "Cela coûte {price}."),
        ("He was born on {date}.", "Il est né le {date}."),
        ("{number} people came.", "{number} personnes sont venues."),
        ("The price rose by {percent}.", "Le prix a augmenté de {percent}."),
        ("Thank you {emoji}", "Merci {emoji}"),
        ("See you tomorrow {emoji}", "À demain {emoji}"),
        ("{name} works for {name2}.", "{name} travaille pour {name2}."),
        ("Version {version} is available.", "La version {version} est disponible."),
    ),
    first_names=split_words(
        "Anna Bob Carlos Diana Elena Frank Grace Hugo Ines Jack Karim Laura Mehdi Nina Oscar "
        "Petra Quentin Rosa Sven Tariq Uma Victor Wendy Xavier Yuki Zoe"
    ),
    last_names=split_words(
        "Adler Brandt Costa Dupont Eriksen Ferrari Garcia Hansen Ivanov Johnson Kowalski "
        "Lopez Martin Nakamura Olsen Patel Quinn Rossi Schmidt Tanaka Ueda Vogel Wagner Young"
    ),
    words=split_words(
        "alpha beta cloud data event files graph home index java kernel log main news open "
        "page query report shop test users video web"
    ),
)

MONTHS = tuple(
    zip(
        split_words(
            "January February March April May June July August September October November December"
        ),
        split_words(
            "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
        ),
        strict=True,
    )
)
EMOJI = ("\U0001f642", "\U0001f600", "\U0001f44d", "\u2764\ufe0f", "\U0001f389", "\U0001f680")


def made_pair(frames: Frames, rng: random.Random) -> Filler:
    """Fill the slots of a sentence in both languages."""
    english, french = rng.choice(frames.sentences)
    fillers = {name: make(frames, rng) for name, make in SLOTS.items() if f"{{{name}}}" in english}
    return (
        english.format(**{name: source for name, (source, _) in fillers.items()}),
        french.format(**{name: target for name, (_, target) in fillers.items()}),
    )


def _name(frames: Frames, rng: random.Random) -> Filler:
    name = rng.choice(frames.first_names)
    return _same(f"{name} {rng.choice(frames.last_names)}" if rng.random() < 0.6 else name)


def _email(frames: Frames, rng: random.Random) -> Filler:
    user = rng.choice((rng.choice(frames.first_names).lower(), rng.choice(frames.words)))
    return _same(f"{user}{rng.choice(('', '.', '_'))}{_word(frames, rng)}@{_host(frames, rng)}")


def _url(frames: Frames, rng: random.Random) -> Filler:
    path = "".join(f"/{_word(frames, rng)}" for _ in range(rng.randrange(3)))
    return _same(rng.choice(("https://", "http://", "www.")) + _host(frames, rng) + path)


def _code(frames: Frames, rng: random.Random) -> Filler:
    name = f"{rng.choice(frames.words)}_{_word(frames, rng)}"
    return _same(rng.choice((f"{name}()", f"`{name}`", f"--{rng.choice(frames.words)}", name)))


def _file(frames: Frames, rng: random.Random) -> Filler:
    return _same(f"{_word(frames, rng)}.{rng.choice(('txt', 'pdf', 'py', 'csv', 'html'))}")


def _date(frames: Frames, rng: random.Random) -> Filler:
    day, year = rng.randint(2, 28), rng.randint(1900, 2040)
    english, french = rng.choice(MONTHS)
    if rng.random() < 0.5:
        return f"{english} {day}", f"{day} {french}"
    return f"{english} {day}, {year}", f"{day} {french} {year}"


def _time(frames: Frames, rng: random.Random) -> Filler:
    hour, minute = rng.randint(2, 11), rng.randint(10, 59)
    if rng.random() < 0.5:
        return f"{hour}:{minute} pm", f"{hour + 12} h {minute}"
    return f"{hour}:{minute} am", f"{hour} h {minute}"


def _number(frames: Frames, rng: random.Random) -> Filler:
    number = rng.randint(2, 10 ** rng.randint(1, 5))
    if number > 9999:
        return f"{number:,}", f"{number:,}".replace(",", " ")
    return _same(str(number))


def _price(frames: Frames, rng: random.Random) -> Filler:
    euros, cents = rng.randint(2, 900), rng.randint(10, 99)
    return f"€{euros}.{cents}", f"{euros},{cents} €"


def _percent(frames: Frames, rng: random.Random) -> Filler:
    number = rng.randint(2, 99)
    return f"{number}%", f"{number} %"


def _version(frames: Frames, rng: random.Random) -> Filler:
    return _same(".".join(str(rng.randint(0, 30)) for _ in range(rng.randint(2, 3))))


def _emoji(frames: Frames, rng: random.Random) -> Filler:
    return _same(rng.choice(EMOJI))


def _word(frames: Frames, rng: random.Random) -> str:
    return rng.choice(frames.words) + (str(rng.randint(2, 999)) if rng.random() < 0.3 else "")


def _host(frames: Frames, rng: random.Random) -> str:
    hyphened = "-".join(rng.sample(frames.words, rng.randint(1, 2)))
    return f"{hyphened}.{rng.choice(('com', 'org', 'net', 'fr', 'io', 'co.uk'))}"


def _same(text: str) -> Filler:
    return text, text


SLOTS: dict[str, Callable[[Frames, random.Random], Filler]] = {
    "name": _name,
    "name2": _name,
    "email": _email,
    "url": _url,
    "code": _code,
    "file": _file,
    "date": _date,
    "time": _time,
    "number": _number,
    "price": _price,
    "percent": _percent,
    "version": _version,
    "emoji": _emoji,
}


NUMBER = re.compile(r"\d+")
LIMITS = (12, 31, 59, 99)  # months and hours, days, minutes, and what has two digits
FEWEST = 2  # 0 and 1 decide whether a noun is plural


def replace_values(source: str, target: str, rng: random.Random) -> tuple[str, str] | None:
    """Replace the numbers of a pair: dates, times and amounts. Return None if the two sides do not
    have the same numbers.
    """
    numbers = NUMBER.findall(source)
    if not numbers or sorted(numbers) != sorted(NUMBER.findall(target)):
        return None
    others = {number: _another(number, rng) for number in sorted(set(numbers))}
    source, target = (NUMBER.sub(lambda m: others[m[0]], side) for side in (source, target))
    return source, target


def _another(number: str, rng: random.Random) -> str:
    """Draw a number with as many digits and of the same kind: a month stays a month."""
    value = int(number)
    if value < FEWEST:
        return number
    if len(number) > 2:
        first = rng.choice("123456789") if number[0] != "0" else "0"
        return first + "".join(rng.choices("0123456789", k=len(number) - 1))
    limit = next(limit for limit in LIMITS if value <= limit)
    fewest = 10 if len(number) == 2 and number[0] != "0" else FEWEST
    return str(rng.randint(min(fewest, limit), min(limit, 10 ** len(number) - 1))).zfill(
        len(number)
    )


PHRASES = Path(__file__).with_name("phrases-en-fr.tsv")
MARKS = " .!?"


@cache
def phrases() -> list[tuple[str, str]]:
    """Return everyday phrases in English and French: greetings, signs, names of things. They were
    written for this project, because corpora seldom have them.
    """
    lines = PHRASES.read_text(encoding="utf-8").splitlines()
    return [(source, target) for source, target in (line.split("\t") for line in lines)]


def drawn_phrase(rng: random.Random) -> tuple[str, str]:
    """Draw a phrase: as it is written, without capitals and punctuation, or followed by another
    one.
    """
    source, target = rng.choice(phrases())
    manner = rng.random()
    if manner < 0.2:
        return source.lower().rstrip(MARKS), target
    if manner < 0.4 and source[-1] in MARKS:
        after = rng.choice([phrase for phrase in phrases() if phrase[0][-1] in MARKS])
        return f"{source} {after[0]}", f"{target} {after[1]}"
    return source, target
