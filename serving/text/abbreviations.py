"""Abbreviations of seven languages, after which a sentence may go on."""

import re
from dataclasses import dataclass

_LAST_WORD = re.compile(r"([^\W\d_](?:[\w'’-]|\.(?=[\w-]))*)\.\s*$")
_LONGEST_END = 60  # characters of a sentence's end that are searched, for linear time
_OPENING = "\"'“”„«‹‘’([{¿¡*_ \u00a0\u202f"
_NUMBER = re.compile(r"\d|[IVXLC]+\b|[A-Z]\b|[$€£¥#§]\s?\d")
_FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’](?!s\b)[^\W\d_]+)*")
# What stands right after the stop without a space, as in c.-à-d. and n.º, never begins a sentence.
_GOES_ON = re.compile(r"[-‐‑–º°ª,;:)\]%]|[a-zß-ÿ]")
_ORDINAL = re.compile(r"(?:^|\s)([^\W\d_]+)\s+\d{1,2}\.\s*$")


@dataclass(frozen=True, slots=True)
class _Abbreviations:
    """Abbreviations of one language; those in small letters may begin with a capital too.

    always: the sentence goes on after these.
    before_number: it goes on if a number, a Roman number or a single capital letter follows.
    may_end: it goes on unless a word of `starters` follows.
    before_ordinal: words after which a number with a full stop is an ordinal, as in "am 3. Mai".
    """

    always: frozenset[str] = frozenset()
    before_number: frozenset[str] = frozenset()
    may_end: frozenset[str] = frozenset()
    starters: frozenset[str] = frozenset()
    before_ordinal: frozenset[str] = frozenset()


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LANGUAGES = {
    "en": _Abbreviations(
        always=word_set(
            "approx vs e.g i.e eg ie cf viz ca circa Mr Mrs Ms Mx Dr Drs Prof Messrs Hon Rev Fr Gen"
            " Col Maj Capt Cmdr Lt Sgt Cpl Adm Gov Sen Rep Pres Supt Insp Mt Ft resp incl excl esp"
        ),
        before_number=word_set(
            "no nos fig figs eq eqs ch chs chap sec secs p pp vol vols Art Arts par para pt pts tab"
            " app ex ref refs ver rev ed max min tel ext est fl avg temp alt lat lon rm apt"
            " ste bldg Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur"
            " Thurs Fri Sat Sun gen"
        ),
        may_end=word_set(
            "Inc Ltd Co Corp Bros LLC Cie Univ Assn Assoc Dept Jr Sr Esq St Ave Blvd Rd Ln Hwy Sq"
            " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri"
            " Sat etc al a.m p.m U.S U.K U.N E.U D.C Ph.D M.D B.A M.A B.Sc M.Sc"
        ),
        starters=word_set(
            "he she it they we i you the a an this that these those my his her its our their your"
            " there here what when where who why how which in on at by for from with after before"
            " as if but and or so yet then now also however still both all some many most no not"
            " one two three every each another while since although because do does did is are was"
            " were can could will would should may might please let yes maybe perhaps today"
            " tomorrow yesterday it's he's she's they're we're i'm you're that's there's don't"
        ),
    ),
    "fr": _Abbreviations(
        always=word_set(
            "M MM Mme Mmes Mlle Mlles Dr Drs Pr Prof Me Mgr St Ste Sts Stes env cf p.ex ex c.-à-d"
            " c.à.d càd av bd boul pl chem fg max min vs resp incl Gal Cdt Cap Lt Col J.-C apr"
        ),
        before_number=word_set(
            "n no nos p pp fig figs art arts chap ch vol t éq eq tab sect par al tél réf éd v vers"
            " ann alin §"
        ),
        may_end=word_set("etc Cie Ltd Inc S.A U.S É.-U apr.J.-C hab h min s.d"),
        starters=word_set(
            "il elle ils elles on nous vous je tu le la les un une des ce cet cette ces mon ma mes"
            " son sa ses notre nos votre vos leur leurs et mais ou où donc or ni car puis ensuite"
            " quand qui que quoi quel quelle comment pourquoi dans sur sous avec pour par après"
            " avant si oui non c'est j'ai l'homme il's ici là voici voilà"
        ),
    ),
    "de": _Abbreviations(
        always=word_set(
            "ca bzw vgl Hr Hrn Fr Frl Dr Prof Dipl Ing Hl St Nr Nrn inkl exkl einschl evtl ggf"
            " mind max min z.B d.h u.a o.ä i.d.R z.T s.o s.u sog bes insb gem lt zzgl abzgl usf"
            " vs geb gest verh zw od u"
        ),
        before_number=word_set(
            "Abb Bd Bde Kap S Art Abs Tab Anm Ziff Aufl Bl Jg H Tel Fig Abschn Pos § Gl Str"
        ),
        may_end=word_set("usw etc Co GmbH Inc Str Jh Jhd Chr n.Chr v.Chr Mio Mrd Std Min Sek St"),
        starters=word_set(
            "er sie es wir ihr ich du der die das den dem ein eine einen einem einer dieser diese"
            " dieses mein meine sein seine unser unsere und aber oder denn doch dann danach wenn"
            " als wer was wo wie warum wann in im an am auf mit nach vor bei für von zu aus über"
            " hier dort da heute morgen gestern ja nein nicht kein keine auch so nun jetzt"
        ),
        before_ordinal=word_set(
            "der die das dem den des am im zum zur vom beim ein eine einen einem einer bis ab seit"
            " und jeder jede jedes jeden jedem mein meine meinem sein seine seinem ihr ihre ihrem"
            " unser unsere kaiser könig papst ludwig friedrich heinrich karl wilhelm"
        ),
    ),
    "es": _Abbreviations(
        always=word_set(
            "Sr Sra Sres Sras Srta Dr Dra Dres Prof Profa Ud Uds Vd Vds D Dª Dña Lic Ing Arq Gral"
            " Cnel Tte Cap Sto Sta aprox p.ej ej cf Av Avda Av.da pza Pl c máx mín vs incl"
        ),
        before_number=word_set(
            "n nº núm núms no pág págs p pp fig figs art arts cap caps vol t tomo ap tel tfno"
        ),
        may_end=word_set("etc Cía Ltda Inc EE.UU S.A a.C d.C a.m p.m"),
        starters=word_set(
            "él ella ellos ellas yo tú usted nosotros el la los las un una unos unas este esta"
            " estos estas ese esa mi su sus nuestro y pero o si cuando donde quien que qué cómo"
            " por para con en de a después antes luego también no sí aquí allí hoy mañana ayer"
        ),
    ),
    "pt": _Abbreviations(
        always=word_set(
            "Sr Sra Sres Sras Srta Dr Dra Drs Dras Prof Profa Eng Arq Exmo Exma D Sto Sta S aprox"
            " p.ex ex cf Av R Pç Trav Lic Gen Cel Cap Ten máx mín vs incl"
        ),
        before_number=word_set(
            "n nº no núm pág págs p pp fig figs art arts cap caps vol t tel inc al"
        ),
        may_end=word_set("etc Cia Ltda Lda Inc S.A EUA a.C d.C a.m p.m séc"),
        starters=word_set(
            "ele ela eles elas eu tu você vocês nós o a os as um uma uns umas este esta estes"
            " estas esse essa isto isso meu minha seu sua nosso nossa e mas ou se quando onde quem"
            " que como por para com em no na nos nas de do da depois antes também não sim aqui ali"
            " hoje amanhã ontem"
        ),
    ),
    "it": _Abbreviations(
        always=word_set(
            "Sig Sigg Sig.ra Sig.na Dott Dott.ssa Prof Prof.ssa Ing Avv Arch Geom Rag On Sen Gen S"
            " ca ad.es es cfr cf v.le p.za c.so max min vs"
        ),
        before_number=word_set("n nn pag pagg p pp fig figg art artt cap capp vol tel t par"),
        may_end=word_set("ecc etc Inc S.p.A S.r.l a.C d.C"),
        starters=word_set(
            "lui lei loro io tu noi voi egli ella il lo la i gli le un uno una questo questa"
            " questi queste quel quella mio mia suo sua nostro e ma o se quando dove chi che come"
            " perché per con in di a da su dopo prima poi anche non sì qui là oggi domani ieri"
        ),
    ),
    "nl": _Abbreviations(
        always=word_set(
            "dhr mevr mw dr drs prof ir ing mr ds bijv bv d.w.z o.a m.n t.a.v vgl ca incl excl max"
            " min evt resp i.p.v t.o.v St vs"
        ),
        before_number=word_set("nr nrs p pp blz fig afb art hfst par tel dl vol"),
        may_end=word_set("enz etc Inc v.Chr n.Chr"),
        starters=word_set(
            "hij zij ze het wij we jij je u ik de een dit dat deze die mijn zijn haar ons onze hun"
            " en maar of want dus toen als wie wat waar hoe waarom wanneer in op aan met voor na"
            " bij van naar er hier daar nu vandaag morgen gisteren ja nee niet geen ook"
        ),
    ),
}
_NONE = _Abbreviations()


def sentence_continues(sentence: str, following: str, language: str) -> bool:
    """Return whether a sentence goes on after the place where sentencex has cut it."""
    if not sentence[-1:].isspace() and _GOES_ON.match(following):
        return True
    abbreviations = _LANGUAGES.get(language, _NONE)
    ordinal = _ORDINAL.search(sentence[-_LONGEST_END:])
    if ordinal and ordinal[1].lower() in abbreviations.before_ordinal:
        return True
    last, next_text = _LAST_WORD.search(sentence[-_LONGEST_END:]), following.lstrip(_OPENING)
    if not (last and next_text):
        return False
    word = last[1]
    forms = {word, word[:1].lower() + word[1:]}
    if forms & abbreviations.always:
        return True
    if forms & abbreviations.before_number and _NUMBER.match(next_text):
        return True
    is_small_letter = len(word) == 1 and word.islower()
    if not (is_small_letter or forms & abbreviations.may_end):
        return False
    first = _FIRST_WORD.match(next_text)
    return first is None or first.group().lower() not in abbreviations.starters


def ends_with_abbreviation(text: str, language: str) -> bool:
    """Return whether a text ends with an abbreviation after which a sentence always goes on."""
    last = _LAST_WORD.search(text[-_LONGEST_END:])
    if last is None:
        return False
    word = last[1]
    return bool({word, word[:1].lower() + word[1:]} & _LANGUAGES.get(language, _NONE).always)
