"""Makes pairs around what is copied or written otherwise: names, addresses, code, dates, units.

A frame is a sentence in both languages with slots, a slot's filler what each language writes there.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

Filler = tuple[str, str]  # in the source and in the target


class Frames(NamedTuple):
    """Holds sentences in English and French, and lists that fillers are made of."""

    sentences: tuple[Filler, ...]
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    words: tuple[str, ...]


def listed(words: str) -> tuple[str, ...]:
    return tuple(words.split())


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
    first_names=listed(
        "Anna Bob Carlos Diana Elena Frank Grace Hugo Ines Jack Karim Laura Mehdi Nina Oscar "
        "Petra Quentin Rosa Sven Tariq Uma Victor Wendy Xavier Yuki Zoe"
    ),
    last_names=listed(
        "Adler Brandt Costa Dupont Eriksen Ferrari Garcia Hansen Ivanov Johnson Kowalski "
        "Lopez Martin Nakamura Olsen Patel Quinn Rossi Schmidt Tanaka Ueda Vogel Wagner Young"
    ),
    words=listed(
        "alpha beta cloud data event files graph home index java kernel log main news open "
        "page query report shop test users video web"
    ),
)

MONTHS = tuple(
    zip(
        listed(
            "January February March April May June July August September October November December"
        ),
        listed(
            "janvier février mars avril mai juin juillet août septembre octobre novembre décembre"
        ),
        strict=True,
    )
)
EMOJI = ("\U0001f642", "\U0001f600", "\U0001f44d", "\u2764\ufe0f", "\U0001f389", "\U0001f680")


def made_pair(frames: Frames, rng: random.Random) -> Filler:
    """Fill a sentence's slots, in both languages."""
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
