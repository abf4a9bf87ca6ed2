// Keeps the languages and the text in the page's address, `#en/fr/text`, so that it can be sent to others.

const MOST_CHARACTERS = 4_000; // of an address, encoded: what browsers, chats and mail carry whole

// Returns {source, target, text} of the page's address; null where it has none.
export function readPermalink() {
  const [, source, target, text = ""] = location.hash.match(/^#([\w-]+)\/([\w-]+)(?:\/(.*))?$/s) ?? [];
  return source ? { source, target, text: decoded(text) } : null;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch { // somebody has typed a percent sign
    return text;
  }
}

// Replaces the address: it is no new entry of the browser's history. A text that is too long is left out.
export function showPermalink({ source, target, text }) {
  const encoded = encodeURIComponent(text);
  const end = encoded && encoded.length <= MOST_CHARACTERS ? `/${encoded}` : "";
  history.replaceState(null, "", `#${source}/${target}${end}`);
}
