"""Encodings of plain files: read as they were meant, and written so that nothing is lost."""

from pathlib import Path

import pytest

from serving.documents.encoding import HTML_DECLARATION, read_text
from serving.documents.formats.registry import read_document
from serving.errors import RequestError

TEXTS = [
    ("es", "cp1252", "El Señor García comió piñas. ¿Qué pasó?"),
    ("es", "cp1252", "Señor"),
    ("es", "cp850", "Señor, ¿qué pasó mañana?"),
    ("fr", "cp1252", "Le cœur – l’été à Noël… «oui» 5 €"),
    ("fr", "iso8859-15", "Le cœur de l'été coûte 10 €"),
    ("fr", "cp1252", "café"),
    ("de", "latin-1", "Grüße aus Köln"),
    ("de", "cp1252", "Straße"),
    ("en", "cp1252", "“Smart quotes” and café — don’t"),
    ("en", "cp1252", "50 £ and 5 °C"),
    ("en", "cp1252", "© 2024 Acme™ – all rights reserved"),
    ("pt", "cp1252", "A ação não é fácil, coração"),
    ("sv", "cp1252", "Åsa äter räksmörgås"),
    ("pl", "cp1250", "Zażółć gęślą jaźń, Łódź"),
    ("pl", "iso8859-2", "Zażółć gęślą jaźń, Łódź"),
    ("cs", "cp1250", "Příliš žluťoučký kůň"),
    ("cs", "iso8859-2", "Příliš žluťoučký kůň úpěl"),
    ("ro", "cp1250", "Bună ziua, ţară şi oraşe"),
    ("lt", "cp1257", "Ąžuolas ėjo į mišką"),
    ("ru", "cp1251", "Привет, как дела?"),
    ("ru", "koi8-r", "Привет, как дела?"),
    ("ru", "cp866", "Привет, как дела"),
    ("ru", "iso8859-5", "Привет мир"),
    ("uk", "cp1251", "Доброго дня, Київ їсть"),
    ("el", "cp1253", "Καλημέρα κόσμε, τι κάνεις;"),
    ("ja", "cp932", "犬が雪の中を走っています。"),
    ("ja", "euc_jp", "犬が雪の中を走っています。"),
    ("ja", "iso2022_jp", "日本語です"),
    ("zh", "gbk", "一只狗在雪地里奔跑。"),
    ("zh", "gbk", "中文"),
    ("zh", "big5", "一隻狗在雪地裡奔跑。"),
    ("ko", "cp949", "개가 눈 속을 달린다."),
    ("ar", "cp1256", "مرحبا بالعالم"),
    ("th", "cp874", "สวัสดีชาวโลก"),
    ("en", "utf-16-le", "Hello world\nA dog runs."),
    ("en", "utf-16-be", "Hello world\nA dog runs."),
    ("ru", "utf-16-le", "Привет мир\n"),
]
ONLY_WITH_LANGUAGE = [
    ("hu", "cp1250", "erdő"),
    ("tr", "iso8859-9", "Şeker"),
    ("tr", "cp1254", "Güneşli bir gün, ağaç, ışık"),
    ("ru", "cp1251", "Да"),
    ("ja", "cp932", "日本語"),
    ("he", "cp1255", "שלום עולם"),
]


def read(tmp_path: Path, data: bytes, language: str | None) -> str:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    return read_text(path, language).text


@pytest.mark.parametrize(("language", "encoding", "text"), TEXTS + ONLY_WITH_LANGUAGE)
def test_text_of_a_known_language(tmp_path: Path, language: str, encoding: str, text: str) -> None:
    assert read(tmp_path, text.encode(encoding), language) == text


@pytest.mark.parametrize(("language", "encoding", "text"), TEXTS)
def test_text_of_an_unknown_language(
    tmp_path: Path, language: str, encoding: str, text: str
) -> None:
    assert read(tmp_path, text.encode(encoding), None) == text


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
        (b"\xff\xfe\0\0", "utf-32-le"),
    ],
)
def test_byte_order_marks_stay(tmp_path: Path, mark: bytes, encoding: str) -> None:
    path, target = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_bytes(mark + "Señor".encode(encoding))

    file = read_text(path)
    file.write("Œuvre", target)

    assert file.text == "Señor"
    assert target.read_bytes() == mark + "Œuvre".encode(encoding)


PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\nmsgid "{}"\nmsgstr ""\n'
HTML = '<meta charset="{}"><p>{}</p>'
HTTP_EQUIV = '<META http-equiv=Content-Type content="text/html; charset={}"><p>{}</p>'
COMMENTED = '<!-- <meta charset="big5"> --><meta charset={}><p>{}</p>'
XHTML = '<?xml version="1.0" encoding="{}"?><p>{}</p>'
NOT_WELL_FORMED = ("Shift_JIS", "CHARSET", "unicode_escape", "us-ascii", "utf-16")
XLIFF = (
    '<?xml version="1.0" encoding="{}"?>\n<xliff version="1.2"><file><body><trans-unit id="1">'
    "<source>{}</source></trans-unit></body></file></xliff>"
)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.po", PO),
        ("a.html", HTML),
        ("a.html", HTTP_EQUIV),
        ("a.html", COMMENTED),
        ("a.html", XHTML),
        ("a.xlf", XLIFF),
    ],
)
@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("windows-1250", "cp1250", "Seńor"),
        ("ISO-8859-1", "latin-1", "Señor"),
        ("koi8-r", "koi8-r", "Вы"),
        ("cp1251", "cp1251", "Да"),
        ("Shift_JIS", "cp932", "日本語①"),
        ("gb2312", "gbk", "中文"),
        ("ISO-8859-1", "cp1252", "“Señor”"),
        ("ISO-8859-1", "utf-8", "Señor"),  # which such a file says wrongly
        ("CHARSET", "utf-8", "Señor"),
        ("unicode_escape", "utf-8", "Señor"),
        ("us-ascii", "cp1252", "Señor"),
        ("utf-16", "utf-8", "Señor"),
    ],
)
def test_what_a_file_declares_is_believed(
    tmp_path: Path, name: str, form: str, declared: str, encoding: str, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(form.format(declared, text).encode(encoding))
    if name == "a.xlf" and declared in NOT_WELL_FORMED:
        pytest.skip("is not well-formed")

    assert read_document(path, name).fragments == [text]


@pytest.mark.parametrize(("name", "form"), [("a.po", PO), ("a.xlf", XLIFF)])
@pytest.mark.parametrize("declared", ["ISO-8859-1", "us-ascii", "cp1250"])
def test_what_an_encoding_does_not_hold_is_written_in_utf_8(
    tmp_path: Path, name: str, form: str, declared: str
) -> None:
    path, target = tmp_path / name, tmp_path / f"out-{name}"
    path.write_bytes(form.format(declared, "heart").encode())

    read_document(path, name).write(["cœur ñ"], target, "fr")

    written = target.read_bytes().decode("utf-8")
    assert "cœur ñ" in written
    assert "UTF-8" in written and declared not in written


def test_a_page_declares_what_it_is_written_in(tmp_path: Path) -> None:
    path, target = tmp_path / "a.html", tmp_path / "b.html"
    path.write_bytes(b'<?xml version="1.0" encoding="latin-1"?><meta charset="latin-1"><p>a</p>')

    read_text(path, None, HTML_DECLARATION).write('<meta charset="latin-1"><p>œ</p>', target)

    assert target.read_text() == '<meta charset="UTF-8"><p>œ</p>'


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", bytes(range(256))])
def test_what_is_no_text(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(RequestError, match="is not text"):
        read(tmp_path, data, "en")
