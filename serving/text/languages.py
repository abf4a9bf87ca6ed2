"""Languages by the codes that people and models write for them.

Models say `eng_Latn`, `en_XX`, `fra` or `pt_BR`, clients `en`, `EN-US`, `eng` or `pt-br`. A code is
a language and perhaps a script and a region, apart by `-` or `_` (BCP 47). A client's means

1. the model's code that is the same, capitals and `_` aside; else
2. all codes of the same language, unless both name a script, or a region, and not the same one.

The language is the same if its ISO 639 codes of two and three letters are; where a model names the
main member of a macrolanguage (`arb`, `cmn`, `lvs`), that stands for the whole (`ar`, `zh`, `lv`).
Of several that are left the client has to choose.
"""

import re
from functools import lru_cache

# ISO 639-1, ISO 639-3, English name.
_TABLE = """
aa aar Afar; ab abk Abkhazian; ae ave Avestan; af afr Afrikaans; ak aka Akan; am amh Amharic;
an arg Aragonese; ar ara Arabic; as asm Assamese; av ava Avaric; ay aym Aymara;
az aze Azerbaijani; ba bak Bashkir; be bel Belarusian; bg bul Bulgarian; bi bis Bislama;
bm bam Bambara; bn ben Bengali; bo bod Tibetan; br bre Breton; bs bos Bosnian; ca cat Catalan;
ce che Chechen; ch cha Chamorro; co cos Corsican; cr cre Cree; cs ces Czech; cu chu Church Slavic;
cv chv Chuvash; cy cym Welsh; da dan Danish; de deu German; dv div Dhivehi; dz dzo Dzongkha;
ee ewe Ewe; el ell Greek; en eng English; eo epo Esperanto; es spa Spanish; et est Estonian;
eu eus Basque; fa fas Persian; ff ful Fulah; fi fin Finnish; fj fij Fijian; fo fao Faroese;
fr fra French; fy fry Western Frisian; ga gle Irish; gd gla Scottish Gaelic; gl glg Galician;
gn grn Guarani; gu guj Gujarati; gv glv Manx; ha hau Hausa; he heb Hebrew; hi hin Hindi;
ho hmo Hiri Motu; hr hrv Croatian; ht hat Haitian Creole; hu hun Hungarian; hy hye Armenian;
hz her Herero; ia ina Interlingua; id ind Indonesian; ie ile Interlingue; ig ibo Igbo;
ii iii Sichuan Yi; ik ipk Inupiaq; io ido Ido; is isl Icelandic; it ita Italian; iu iku Inuktitut;
ja jpn Japanese; jv jav Javanese; ka kat Georgian; kg kon Kongo; ki kik Kikuyu; kj kua Kuanyama;
kk kaz Kazakh; kl kal Kalaallisut; km khm Khmer; kn kan Kannada; ko kor Korean; kr kau Kanuri;
ks kas Kashmiri; ku kur Kurdish; kv kom Komi; kw cor Cornish; ky kir Kyrgyz; la lat Latin;
lb ltz Luxembourgish; lg lug Ganda; li lim Limburgan; ln lin Lingala; lo lao Lao;
lt lit Lithuanian; lu lub Luba-Katanga; lv lav Latvian; mg mlg Malagasy; mh mah Marshallese;
mi mri Maori; mk mkd Macedonian; ml mal Malayalam; mn mon Mongolian; mr mar Marathi; ms msa Malay;
mt mlt Maltese; my mya Burmese; na nau Nauru; nb nob Norwegian Bokmål; nd nde North Ndebele;
ne nep Nepali; ng ndo Ndonga; nl nld Dutch; nn nno Norwegian Nynorsk; no nor Norwegian;
nr nbl South Ndebele; nv nav Navajo; ny nya Nyanja; oc oci Occitan; oj oji Ojibwa; om orm Oromo;
or ori Odia; os oss Ossetian; pa pan Punjabi; pi pli Pali; pl pol Polish; ps pus Pashto;
pt por Portuguese; qu que Quechua; rm roh Romansh; rn run Rundi; ro ron Romanian; ru rus Russian;
rw kin Kinyarwanda; sa san Sanskrit; sc srd Sardinian; sd snd Sindhi; se sme Northern Sami;
sg sag Sango; sh hbs Serbo-Croatian; si sin Sinhala; sk slk Slovak; sl slv Slovenian;
sm smo Samoan; sn sna Shona; so som Somali; sq sqi Albanian; sr srp Serbian; ss ssw Swati;
st sot Southern Sotho; su sun Sundanese; sv swe Swedish; sw swa Swahili; ta tam Tamil;
te tel Telugu; tg tgk Tajik; th tha Thai; ti tir Tigrinya; tk tuk Turkmen; tl tgl Tagalog;
tn tsn Tswana; to ton Tongan; tr tur Turkish; ts tso Tsonga; tt tat Tatar; tw twi Twi;
ty tah Tahitian; ug uig Uyghur; uk ukr Ukrainian; ur urd Urdu; uz uzb Uzbek; ve ven Venda;
vi vie Vietnamese; vo vol Volapük; wa wln Walloon; wo wol Wolof; xh xho Xhosa; yi yid Yiddish;
yo yor Yoruba; za zha Zhuang; zh zho Chinese; zu zul Zulu
"""
_ROWS = [row.split(maxsplit=2) for row in _TABLE.replace("\n", " ").split(";")]
_NAMES = {short: name for short, _, name in _ROWS}
# Members of macrolanguages by which models mean the whole, and codes that were replaced.
_MEMBERS = {
    "als": "sq",
    "arb": "ar",
    "ayr": "ay",
    "azj": "az",
    "cmn": "zh",
    "ekk": "et",
    "gaz": "om",
    "in": "id",
    "iw": "he",
    "ji": "yi",
    "jw": "jv",
    "khk": "mn",
    "kmr": "ku",
    "knc": "kr",
    "lvs": "lv",
    "npi": "ne",
    "ory": "or",
    "pbt": "ps",
    "pes": "fa",
    "plt": "mg",
    "quy": "qu",
    "swh": "sw",
    "uzn": "uz",
    "ydd": "yi",
    "zsm": "ms",
}
_SHORT = {long: short for short, long, _ in _ROWS} | _MEMBERS
_LONGEST_CODE = 35  # characters; BCP 47 has none that are longer (RFC 5646, section 4.4.1)
_NO_REGION = "xx"  # mBART's way to say that there is none
UNDETERMINED = "und"  # ISO 639-3's code of no language in particular


def matching(code: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the known codes that a client's may mean: the same one alone, else all of that
    language that it does not rule out.
    """
    return _matching(code, known) if len(code) <= _LONGEST_CODE else ()


@lru_cache(maxsize=1024)
def _matching(code: str, known: tuple[str, ...]) -> tuple[str, ...]:
    same = [each for each in known if _plain(each) == _plain(code)]
    wanted = _parts(code)
    return tuple(same[:1]) or tuple(each for each in known if _agree(_parts(each), wanted))


def primary_language(code: str) -> str:
    """Return the language of a code, in two letters if it has such."""
    return _parts(code)[0]


def language_name(code: str) -> str:
    """Return the English name; the code itself where no name is known."""
    return _NAMES.get(primary_language(code), code)


def _parts(code: str) -> tuple[str, str | None, str | None]:
    """Return language, script and region."""
    language, *others = _plain(code).split("-")
    script = next((part for part in others if re.fullmatch("[a-z]{4}", part)), None)
    regions = (part for part in others if re.fullmatch("[a-z]{2}|[0-9]{3}", part))
    region = next((part for part in regions if part != _NO_REGION), None)
    return _SHORT.get(language, language), script, region


def _plain(code: str) -> str:
    return code.lower().replace("_", "-")


def _agree(
    own: tuple[str, str | None, str | None], wanted: tuple[str, str | None, str | None]
) -> bool:
    """Check that the language is the same, and nothing that both name differs."""
    pairs = zip(own, wanted, strict=True)
    return all(None in pair or pair[0] == pair[1] for pair in pairs)
