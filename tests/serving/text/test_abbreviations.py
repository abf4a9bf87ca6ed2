"""Sentences are not cut after abbreviations, and still are where one ends."""

import pytest

from serving.text.sentences import split_text

WHOLE = {
    "en": [
        "It costs approx. 5 dollars.",
        "The trip takes approx. Five days.",
        "It was cats vs. Dogs that day.",
        "Bring fruit, e.g. Apples and pears.",
        "Turn left, i.e. North.",
        "Look at No. 3 and Nos. 4 and 5.",
        "Fig. 2 and Eq. 7 are in Ch. 5, Vol. II, pp. 3 to 9.",
        "See App. B and Sec. 4.",
        "Dial Tel. 555 or Ext. 12.",
        "Apple Inc. CEO Tim Cook spoke.",
        "Acme Ltd. Chairman John Smith left.",
        "He lives on St. James Street.",
        "We met at the Univ. of York.",
        "Max. 5 people can enter.",
        "The box (est. 1990) is old.",
        "Rev. Green met Gen. Lee and Mrs. White.",
    ],
    "fr": [
        "M. Dupont et Mme. Durand sont là.",
        "Le Dr. Martin et le Pr. Dubois parlent.",
        "Il habite bd. Victor Hugo, av. Foch.",
        "Voir fig. 2, art. 5, n. 3 et chap. IV.",
        "Il faut env. 5 personnes, p. ex. Paul.",
        "La capitale, c.-à-d. Paris, est belle.",
        "J.-C. Rousseau est venu.",
    ],
    "de": [
        "Das sind ca. 5 Hunde, z. B. Dackel, bzw. Pudel.",
        "Der Preis inkl. Steuern ist hoch.",
        "Siehe Abb. 3, Nr. 5 und Kap. 2.",
        "Hr. Meier und Fr. Kunz wohnen in St. Gallen.",
        "Es war der 2. Weltkrieg.",
        "Er kam am 3. Mai mit dem 1. Zug.",
    ],
    "es": [
        "El Sr. García y la Sra. López viven en la Av. Libertad.",
        "Cuesta aprox. 5 euros, p. ej. Un libro.",
        "Véase la pág. 3 y el núm. 5.",
    ],
    "pt": [
        "O Sr. Silva mora na Av. Brasil.",
        "Veja a pág. 3, o n.º 5 e a fig. 2.",
        "Custa aprox. 5 euros, p. ex. Lisboa.",
    ],
    "it": ["Il Sig. Rossi abita in piazza S. Pietro.", "Vedi pag. 3, n. 5 e fig. 2."],
    "nl": ["Dhr. Jansen woont in Utrecht, bijv. Amsterdam, o.a. Leiden."],
}
CUT = {
    "en": [
        ("He works at Apple Inc.", "He is happy."),
        ("He lives in the U.S.", "She lives there."),
        ("He lives on Main St.", "They like it."),
        ("It was 5 p.m.", "We left."),
        ("I said no.", "He left."),
        ("He is 30.", "She is 25."),
        ("Cats, dogs, etc.", "The end."),
        ("We took him in.", "Dogs barked."),
        ("See Fig. 2.", "The dog runs."),
        ("He came on Jan. 5.", "It was cold."),
    ],
    "fr": [("Elle dit non.", "Il part."), ("Voir p. 5.", "Le chien court.")],
    "de": [("Er ist 30.", "Sie ist 25.")],
    "pt": [("Ele disse que não.", "Ela saiu.")],
}


@pytest.mark.parametrize(
    ("language", "sentence"), [(language, text) for language in WHOLE for text in WHOLE[language]]
)
def test_a_sentence_goes_on_after_an_abbreviation(language: str, sentence: str) -> None:
    assert split_text(sentence, language, bool).segments == (sentence,)


@pytest.mark.parametrize(
    ("language", "sentences"), [(language, pair) for language in CUT for pair in CUT[language]]
)
def test_a_sentence_ends_all_the_same(language: str, sentences: tuple[str, str]) -> None:
    assert split_text(" ".join(sentences), language, bool).segments == sentences
