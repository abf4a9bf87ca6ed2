// Asks the server. Paths are relative, so the page works beneath any path of a proxy.

const KEY = "attendant-key";

export const shownKey = () => sessionStorage.getItem(KEY) ?? "";

export function keepKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// Says in words why there is no answer.
export class Refused extends Error {}

export async function get(path) {
  return (await answered(path, {})).json();
}

export async function getText(path) {
  return (await answered(path, {})).text();
}

export async function post(path, body, signal) {
  return (await answered(path, written(body, signal))).json();
}

export async function postForm(path, body) {
  return (await answered(path, { method: "POST", body })).json();
}

// Yields the values of server-sent events, as they come.
export async function* stream(path, body, signal) {
  const response = await answered(path, written({ ...body, stream: true }, signal));
  for await (const line of lines(response.body)) {
    if (!line.startsWith("data: ")) continue; // pings, and what stands between events
    const data = line.slice("data: ".length);
    if (data === "[DONE]") return;
    const value = JSON.parse(data);
    if (value.error) throw new Refused(inWords(value, 500));
    yield value;
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

const written = (body, signal) => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: { "Content-Type": "application/json" },
  signal,
});

async function answered(path, options) {
  const headers = { ...options.headers };
  if (shownKey()) headers.Authorization = `Bearer ${shownKey()}`;
  const response = await reached(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  throw new Refused(inWords(body, response.status));
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server cannot be reached.");
  }
}

function inWords(body, status) {
  const said = body?.error?.message ?? body?.error;
  return typeof said === "string" ? said : `The server answered with status ${status}.`;
}

// Shows why something failed; what was stopped on purpose is no failure.
export async function tellingErrors(place, work) {
  try {
    place.textContent = "";
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    place.textContent = error instanceof Refused ? error.message : `This page failed: ${error.message}`;
    return undefined;
  }
}
