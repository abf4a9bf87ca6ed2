"""Says which plural form of a language a number takes, as PO files have it."""

import gettext
import re
from collections.abc import Callable
from dataclasses import dataclass

from babel import Locale, UnknownLocaleError
from babel.messages.plurals import DEFAULT_PLURAL, get_plural

_RULE = re.compile(r"nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=\s*([^;]+)")
_NUMBERS = range(1_000)
_OFTEN = 5  # a form of more numbers than these may say them only by a placeholder


@dataclass(frozen=True)
class PluralForms:
    """Holds the rule of a language. form_of: a number's form, from 0 to num_forms - 1."""

    num_forms: int
    form_of: Callable[[int], int]
    rule: str

    def is_of_one(self, form: int) -> bool:
        """Check that a form is that of the number 1."""
        return self.form_of(1) == form and self.num_forms > 1

    def is_of_few_numbers(self, form: int) -> bool:
        return sum(self.form_of(number) == form for number in _NUMBERS) <= _OFTEN


def declared_forms(rule: str) -> PluralForms | None:
    """Return what a header's `Plural-Forms` says, or None if that makes no sense."""
    found = _RULE.match(rule.strip())
    if found is None or not int(found[1]):
        return None
    try:
        form_of = gettext.c2py(found[2].strip())
        highest = max(map(form_of, _NUMBERS))
    except (ValueError, ArithmeticError, RecursionError):
        return None
    return PluralForms(int(found[1]), form_of, rule) if highest < int(found[1]) else None


def forms_of(language: str) -> PluralForms:
    """Return the rule of a language; of one that is not known that of English."""
    try:
        rule = str(get_plural(Locale.parse(language, sep="-" if "-" in language else "_")))
    except (UnknownLocaleError, ValueError):
        rule = "nplurals={}; plural={};".format(*DEFAULT_PLURAL)
    forms = declared_forms(rule)
    assert forms is not None  # of Babel's own rules
    return forms
