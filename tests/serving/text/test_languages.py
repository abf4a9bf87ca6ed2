"""Codes of languages: what people write finds what models are called by."""

import pytest

from serving.text.languages import (
    full_language_name,
    is_same_language,
    language_name,
    match_codes,
    primary_language,
    script_of_text,
)

NLLB = ("eng_Latn", "fra_Latn", "arb_Arab", "zho_Hans", "zho_Hant", "lvs_Latn", "ace_Latn")
MBART = ("en_XX", "fr_XX", "pt_BR", "zh_CN")
M2M = ("en", "fr", "pt", "zh", "he")


@pytest.mark.parametrize(
    ("code", "known_codes", "meant"),
    [
        ("eng_Latn", NLLB, ["eng_Latn"]),
        ("en", NLLB, ["eng_Latn"]),
        ("EN-US", NLLB, ["eng_Latn"]),
        ("ENG-LATN", NLLB, ["eng_Latn"]),
        ("eng_Cyrl", NLLB, []),
        ("ar", NLLB, ["arb_Arab"]),
        ("lv", NLLB, ["lvs_Latn"]),
        ("ace", NLLB, ["ace_Latn"]),
        ("zh", NLLB, ["zho_Hans"]),
        ("zh-Hant", NLLB, ["zho_Hant"]),
        ("zh-Hant-TW", NLLB, ["zho_Hant"]),
        ("cmn", NLLB, ["zho_Hans"]),
        ("en", MBART, ["en_XX"]),
        ("en-GB", MBART, ["en_XX"]),
        ("pt", MBART, ["pt_BR"]),
        ("pt-PT", MBART, []),
        ("zh-Hans", MBART, ["zh_CN"]),
        ("zh-Hant", MBART, []),
        ("eng_Latn", M2M, ["en"]),
        *[(code, NLLB, ["zho_Hans"]) for code in ("zh-CN", "zh_SG", "zh-Hans")],
        *[(code, NLLB, ["zho_Hant"]) for code in ("zh-TW", "zh-HK", "zt", "ZH-HANT-HK")],
        ("pb", MBART, ["pt_BR"]),
        ("pb", M2M, ["pt"]),
        ("nb", ("en", "no"), ["no"]),
        ("no", ("nob_Latn", "nno_Latn"), ["nob_Latn"]),
        ("nn", ("nob_Latn", "nno_Latn"), ["nno_Latn"]),
        ("nn", ("en", "no"), []),
        ("fil", ("tl",), ["tl"]),
        ("tl", ("fil",), ["fil"]),
        ("tgl", ("tgl_Latn",), ["tgl_Latn"]),
        ("sr", ("srp_Cyrl", "srp_Latn"), ["srp_Cyrl"]),
        ("sr-Latn", ("srp_Cyrl", "srp_Latn"), ["srp_Latn"]),
        ("sr-ME", ("srp_Cyrl", "srp_Latn"), ["srp_Latn"]),
        ("iw", M2M, ["he"]),
        ("pt", ("pt", "pt_BR"), ["pt"]),
        ("pt-BR", ("pt", "pt_BR"), ["pt_BR"]),
        ("pt-PT", ("pt", "pt_BR"), ["pt"]),
        ("por", ("pt", "pt_BR"), ["pt", "pt_BR"]),
        ("zh-TW", ("zh", "zh-Hant"), ["zh-Hant"]),
        ("zt", ("zh", "zh-Hans", "zh-Hant"), ["zh-Hant"]),
        ("zho", ("zh", "zh-Hant"), ["zh"]),
        ("xx", M2M, []),
        ("", M2M, []),
        ("-", M2M, []),
        ("en-" + "x" * 100, M2M, []),
    ],
)
def test_what_a_code_means(code: str, known_codes: tuple[str, ...], meant: list[str]) -> None:
    assert list(match_codes(code, known_codes)) == meant


def test_names() -> None:
    names = [language_name(code) for code in ("en", "eng_Latn", "en_XX", "cmn_Hans", "xx")]

    assert names == ["English", "English", "English", "Chinese", "xx"]


def test_splitting_is_told_two_letters() -> None:
    codes = ("eng_Latn", "DE-at", "por", "ace_Latn")
    assert [primary_language(code) for code in codes] == ["en", "de", "pt", "ace"]


def test_full_names_say_the_script_and_the_region() -> None:
    codes = ("fr", "eng_Latn", "zh", "zh-Hant", "zh-TW", "pt_BR", "pt-AO", "yue", "xx")
    assert [full_language_name(code) for code in codes] == [
        "French",
        "English",
        "Chinese",
        "Traditional Chinese",
        "Traditional Chinese",
        "Brazilian Portuguese",
        "Portuguese",
        "Cantonese",
        "xx",
    ]


SAME = """
en en
en EN-GB
en_US en-gb
eng_Latn en
eng en_XX
pt pt-BR
pt-PT pt_BR
pb pt
zh zh-Hans
zh zh_CN
zh-SG zh-Hans
zt zh-TW
zh-Hant zh-HK
cmn zh
sr sr-Cyrl
srp_Latn sr-ME
nb no
fil tl
iw he
lvs_Latn lv
"""
DIFFERENT = """
en fr
zh zh-Hant
zh-CN zh-TW
zho_Hans zho_Hant
sr-Latn sr-Cyrl
sr sr-Latn
uz uz-Cyrl
pa-PK pa
nb nn
nb da
zh yue
hr sr
xx yy
und und
"""


@pytest.mark.parametrize("pair", SAME.strip().splitlines())
def test_codes_of_one_language(pair: str) -> None:
    code, other = pair.split()

    assert is_same_language(code, other)
    assert is_same_language(other, code)


@pytest.mark.parametrize("pair", DIFFERENT.strip().splitlines())
def test_codes_of_two_languages_or_scripts(pair: str) -> None:
    code, other = pair.split()

    assert not is_same_language(code, other)
    assert not is_same_language(other, code)


def test_codes_of_nothing_are_of_no_language() -> None:
    long = "en-" + "x" * 100

    assert not any(is_same_language(code, code) for code in ("", "-", "und", long))


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("The dog runs, собака 1.", "latn"),
        ("Собака бежит: dog", "cyrl"),
        ("مرحبا بالعالم", "arab"),
        ("我们去学校", "hans"),
        ("我們去學校 abc", "hant"),
        ("使用 Python 编程", "hans"),
        ("The word 学校 means school.", "latn"),
        ("你好", None),
        ("ไทย", None),
        ("12 !?", None),
        ("", None),
    ],
)
def test_scripts_of_texts(text: str, script: str | None) -> None:
    assert script_of_text(text) == script
