"""Lists the protocols by the names that the command line and the recordings give them."""

from loadtest.protocols.deepl import DeepL
from loadtest.protocols.libretranslate import LibreTranslate
from loadtest.protocols.openai import Chat, Completions
from loadtest.protocols.protocol import ApiProtocol

PROTOCOLS: dict[str, ApiProtocol] = {
    "translate": LibreTranslate(),
    "completions": Completions(),
    "chat": Chat(),
    "deepl": DeepL(),
}
