"""Strings that tokenizers get wrong; the same for all of them, always in the same order."""

import random

SCRIPTS = (
    "The quick brown fox doesn't jump.",
    "Où est l'élève ? Çà et là, naïf, cœur.",
    "Straße, Größe, Übermut – „genau“.",
    "Быстрая лиса прыгает через забор.",
    "Η γρήγορη αλεπού πηδάει.",
    "الثعلب البني السريع يقفز.",
    "السَّلامُ عَلَيْكُمْ",
    "השועל המהיר קופץ שָׁלוֹם",
    "तेज़ भूरी लोमड़ी कूदती है।",
    "দ্রুত বাদামী শিয়াল লাফায়।",
    "வேகமான பழுப்பு நரி",
    "สุนัขจิ้งจอกกระโดดข้ามรั้ว",
    "敏捷的棕色狐狸跳过了懒狗。",
    "素早い茶色の狐が、のろまな犬を飛び越える。ガギグゲゴ",
    "빠른 갈색 여우가 뛰어넘는다.",
    "ትልቁ ቀበሮ ዘለለ",
    "სწრაფი ყავისფერი მელა",
    "Արագ շագանակագույն աղվեսը",
    "Con cáo nâu nhanh nhẹn nhảy qua",
    "İstanbul'da ığdır, çığ, şöyle",
    "ᚠᚢᚦᚨᚱᚲ 𐎀𐎁𐎂 𝔊𝔬𝔱𝔥𝔦𝔠 𝟘𝟙𝟚",
)
SIGNS = (
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "👍🏽",
    "🇫🇷🇩🇪",
    "😀😀😀",
    "❤️",
    "e\u0301a\u0300o\u0302",
    "a\u0323\u0302",
    "Z\u0351\u036b\u0343a\u0310l\u0335g\u0321o\u0334",
    "\ufb01n \ufb02ow \ufb03",
    "\uff21\uff22\uff23\uff11\uff12\uff13\uff01",
    "\uff76\uff9e\uff77\uff9e",
    "\u1100\u1161\u11a8",
    "\u212b \u2126 \u00b5 \u00bd \u2153 \u00b2",
    "\u2460\u2461 \u33a1 \u2122",
    "\u00a0",
    "\u2003\u2009\u202f",
    "\u3000",
    "\u200b\u200c\u200d\ufeff",
    "\u200e\u200f\u202a\u202c",
    "\u00ad",
    "\t",
    "\n",
    "\r\n",
    "\v\f",
    "\x01\x07\x1b\x7f",
    "\x85\u2028\u2029",
    "\ufffd",
    "\U0010ffff",
    "\ue000",
    "\u2581",
    "\u2581\u2581a",
    "</s>",
    "<s>",
    "<unk>",
    "<pad>",
    "<mask>",
    "<|endoftext|>",
    "<|im_start|>user",
    "<0x41>",
    "[INST]",
    ">>fra<<",
    "@@",
    "wor@@ ld",
    "</w>",
    "##ing",
    "https://example.org/a?b=c&d=%20#e_f",
    "me.you+tag@mail.example.com",
    "1234567890",
    "3.14159 1,000,000 12:30",
    "x" * 300,
    "Donaudampfschifffahrtsgesellschaftskapitän",
    "aaaaaaaa",
    "!!!???...",
    "\"'`´‘’“”«»",
    "()[]{}<>/\\|",
    "C:\\temp\\new",
    "def f(x):\n    return x\n",
    "I'll we've THEY'RE it's O'Neil",
    "…—–-‐",
    "$5 €10 £3 ¥7",
    "²³¹ ªº",
    "ǅ ß ﬀ İ ŉ",
)
SPACES = ("", " ", "  ", "   ", "\t", "\n", "\n\n", "\u00a0", "\u3000", " \n ")


def awkward_texts(number: int = 1000) -> list[str]:
    """All of the above, alone and within spaces, then mixtures and bytes decoded; all distinct."""
    chance = random.Random(5)
    texts = dict.fromkeys(("", *SCRIPTS, *SIGNS, *SPACES))
    for sign in (*SIGNS, *SCRIPTS):
        texts.update(dict.fromkeys((f" {sign}", f"{sign} ", f"  {sign}  x", f"a{sign}b")))
    while len(texts) < number:
        texts[_mixture(chance) if chance.random() < 0.8 else _decoded(chance)] = None
    return list(texts)[:number]


def _mixture(chance: random.Random) -> str:
    words = [word for text in SCRIPTS for word in text.split()]
    parts = [chance.choice(chance.choice((words, SIGNS))) for _ in range(chance.randint(1, 8))]
    return "".join(part + chance.choice(SPACES) for part in parts)


def _decoded(chance: random.Random) -> str:
    """Random bytes, and random characters of the whole of Unicode."""
    if chance.random() < 0.5:
        return chance.randbytes(chance.randint(1, 20)).replace(b"\0", b"").decode(errors="replace")
    points = (chance.randint(1, 0x10FFFF) for _ in range(chance.randint(1, 12)))
    return "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)
