// Asks the server. Paths are relative, so the page works beneath any path of a proxy.

import { lost } from "./connection.js";
import { formatMessage } from "./messages.js";

const KEY = "attendant-key";
const GONE = [502, 503]; // from a proxy, while the server stops or starts

export const shownKey = () => sessionStorage.getItem(KEY) ?? "";

export function keepKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// The server refused the request.
export class Refused extends Error {}

// The server does not answer.
export class Unreachable extends Refused {}

export async function get(path) {
  return (await request(path, {})).json();
}

export async function getText(path) {
  return (await request(path, {})).text();
}

export async function post(path, body, signal) {
  return (await request(path, jsonOptions(body, signal))).json();
}

export async function postForm(path, body, signal) {
  return (await request(path, { method: "POST", body, signal })).json();
}

export async function postForBlob(path, body, signal) {
  return (await request(path, jsonOptions(body, signal))).blob();
}

export async function remove(path) {
  await request(path, { method: "DELETE" });
}

// Yields the values of server-sent events, as they come.
export async function* stream(path, body, signal) {
  yield* events(await request(path, jsonOptions({ ...body, stream: true }, signal)));
}

export async function* streamForm(path, body, signal) {
  yield* events(await request(path, { method: "POST", body, signal }));
}

// A stream that is whole ends with [DONE], or with the whole translation or transcript.
async function* events(response) {
  let last = null;
  for await (const line of lines(response.body)) {
    if (!line.startsWith("data: ")) continue; // pings and empty lines
    const data = line.slice("data: ".length);
    if (data === "[DONE]") return;
    last = JSON.parse(data);
    if (last.error) throw new Refused(inWords(last, 500));
    yield last;
  }
  if (last?.translatedText === undefined && last?.type !== "transcript.text.done") throw unreachable(formatMessage("server.broken-off"));
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await read(reader);
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable(formatMessage("server.broken-off"));
  }
}

const jsonOptions = (body, signal) => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: { "Content-Type": "application/json" },
  signal,
});

async function request(path, options) {
  const scheme = path.startsWith("v2/") ? "DeepL-Auth-Key" : "Bearer";
  const headers = { ...options.headers };
  if (shownKey()) headers.Authorization = `${scheme} ${shownKey()}`;
  const response = await fetchOrThrow(path, { ...options, headers });
  if (response.ok) return response;
  const message = inWords(await response.json().catch(() => null), response.status);
  throw GONE.includes(response.status) ? unreachable(message) : new Refused(message);
}

async function fetchOrThrow(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw unreachable(formatMessage("server.unreachable"));
  }
}

function unreachable(message) {
  lost();
  return new Unreachable(message);
}

// Each protocol has its own members for the message and the wrong field.
function inWords(body, status) {
  const error = body?.error?.message ? body.error : body;
  const field = error?.param ?? error?.field;
  if (field && error.reason) return formatMessage("server.field-error", { field: nameOf(field), reason: error.reason });
  const message = error?.message ?? error?.error;
  return typeof message === "string" ? message : formatMessage("server.status", { status });
}

// What people know fields of requests by.
const NAMES = {
  q: "server.field.text", text: "server.field.text", prompt: "server.field.text", query: "server.field.text",
  messages: "server.field.message", documents: "server.field.texts", file: "server.field.file", body: "server.field.request",
  source: "server.field.source", source_lang: "server.field.source",
  target: "server.field.target", target_lang: "server.field.target",
};

const nameOf = (field) => (field in NAMES ? formatMessage(NAMES[field]) : field);

// Shows the message of an error, unless the user stopped the work.
export async function showingErrors(place, work) {
  try {
    place.textContent = "";
    return await work();
  } catch (error) {
    if (error.name === "AbortError") return undefined;
    place.textContent = error instanceof Refused ? error.message : formatMessage("server.page-failed", { message: error.message });
    return undefined;
  }
}
