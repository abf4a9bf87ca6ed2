"""Articles, prepositions, conjunctions and auxiliaries of seven languages."""

from serving.text.abbreviations import word_set

# Articles, prepositions, conjunctions, auxiliaries: after these a sentence goes on.
FUNCTION_WORDS = {
    "en": word_set(
        "a an the this these my your his its our their and or but nor of to in on at by for from"
        " with without into onto about over under between behind beside near through during before"
        " after against among around as than that which who whose if because while when where"
        " although unless until so is are was were be been being am has have had will would can"
        " could should may might must do does did not very every each some any no"
    ),
    "fr": word_set(
        "le la les l un une des du de d au aux à en dans sur sous avec sans pour par chez vers"
        " entre devant derrière contre pendant depuis avant après et ou mais ni car que qu qui dont"
        " où si quand lorsque comme parce est sont était étaient a ont avait être avoir ne n pas"
        " très ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs"
        " plus"
    ),
    "de": word_set(
        "der die das dem den des ein eine einen einem einer eines im in am an auf aus bei mit nach"
        " von vom vor zu zum zur für gegen ohne um über unter hinter neben zwischen durch während"
        " und oder aber sondern dass weil wenn als ob ist sind war waren hat haben hatte wird"
        " werden kann können soll muss nicht sehr mein meine meinen meinem sein seine seinen seinem"
        " ihr ihre ihren ihrem unser unsere dieser diese dieses diesem diesen kein keine"
    ),
    "es": word_set(
        "el la los las lo un una unos unas de del a al en con sin por para sobre bajo entre hacia"
        " hasta desde contra durante y e o u pero ni que si cuando donde como porque es son era"
        " está están ha han había ser estar no muy este esta estos estas ese esa mi mis tu tus su"
        " sus nuestro nuestra más se"
    ),
    "pt": word_set(
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela para"
        " com sem sobre sob entre até desde contra durante e ou mas nem que se quando onde como"
        " porque é são era está estão foi tem têm ser não muito este esta estes estas esse essa meu"
        " minha seu sua nosso nossa mais"
    ),
    "it": word_set(
        "il lo la i gli le un uno una di del della dei degli delle dello a al alla ai alle in nel"
        " nella nei nelle con senza per su sul sulla da dal dalla tra fra e o ma né che se quando"
        " dove come perché è sono era ha hanno essere non molto questo questa questi queste mio"
        " mia suo sua nostro più si"
    ),
    "nl": word_set(
        "de het een van in op aan met voor naar bij uit over onder tussen door tegen zonder na te"
        " en of maar want dat die als omdat wanneer waar is zijn was waren heeft hebben had wordt"
        " worden kan niet zeer heel mijn jouw uw haar ons onze hun deze dit geen"
    ),
}
FUNCTION_WORDS_OF_ALL = frozenset().union(*FUNCTION_WORDS.values())
