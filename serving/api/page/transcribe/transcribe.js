// Writes down what is said in a recording, and shows what each word attends to in its sound.

import { copied } from "../common/clipboard.js";
import { whenBack } from "../common/connection.js";
import { onDrop } from "../common/dropping.js";
import { byId, fillSelect } from "../common/elements.js";
import { formatMessage, formatNumber, formatPercent, languageTitle } from "../common/messages.js";
import { showMissing } from "../common/missing.js";
import { modelTitle } from "../common/models.js";
import { showingErrors, streamForm, Unreachable } from "../common/server.js";
import { offerSnippet } from "../common/snippets.js";
import { beginOnward, offerOnward, offerTranslation } from "./onward.js";
import { beginPlaying, goTo, isPlaying, length, load, playFrom, position } from "./playing.js";
import { beginRecording } from "./recording.js";
import { beginSpectrogram, clearSpectrogram, drawSpectrogram } from "./spectrogram.js";
import { offerDownloads, textOf } from "./subtitles.js";
import { formatClock } from "./times.js";
import { Transcript } from "./transcript.js";
import { addSegment, beginWords, clearWords, lightUp } from "./words.js";

const IDENTIFY = ""; // in the place of a language
const ONE_DIGIT = { minimumFractionDigits: 1, maximumFractionDigits: 1 };
const PATHS = { transcribe: "v1/audio/transcriptions", translate: "v1/audio/translations" };

let models = [];
let file = null;
let transcript = new Transcript();
let pointed = null; // the word that somebody has pointed at since the recording was played
let asking = null;
let wasUnreachable = false;

export function beginTranscribing() {
  const panel = byId("transcribe");
  byId("recording").addEventListener("change", ({ target }) => { choose([...target.files]); target.value = ""; });
  onDrop(panel, choose);
  beginRecording(choose);
  beginPlaying(showSpoken);
  beginWords({ point: (word) => { pointed = word; showPicture(); }, play: playFrom });
  beginSpectrogram(goTo);
  beginOnward();
  byId("transcriber").addEventListener("change", () => { offerOptions(); transcribe(); });
  byId("speech").addEventListener("change", transcribe);
  for (const input of document.getElementsByName("speech-task")) input.addEventListener("change", transcribe);
  byId("stop-transcribing").addEventListener("click", stop);
  panel.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
  byId("copy-transcript").addEventListener("click", () => copied(byId("copy-transcript"), textOf(transcript.segments), byId("transcript")));
  offerDownloads(byId("transcript-downloads"), () => ({ name: baseName(), segments: transcript.segments, facts: factsOf(transcript) }));
  whenBack(() => { if (wasUnreachable) transcribe(); });
  offerSnippet(panel, formatMessage("transcribe.snippet"), () =>
    ({ path: PATHS[task()], form: { file: `@${file?.name ?? "recording.mp3"}`, ...fields() } }));
}

export function offerTranscribers(all) {
  models = all.filter((model) => model.task === "transcribe");
  fillSelect(byId("transcriber"), models.map((model) => [model.id, modelTitle(model)]));
  showMissing("transcribe", !models.length);
  offerOptions();
  offerOnward(all);
}

const chosenModel = () => models.find(({ id }) => id === byId("transcriber").value);

// A model of one language neither identifies it nor translates.
function offerOptions() {
  const languages = chosenModel()?.source_languages ?? [];
  const names = languages.map((code) => [code, languageTitle(code)]).sort(([, one], [, other]) => one.localeCompare(other));
  fillSelect(byId("speech"), languages.length > 1 ? [[IDENTIFY, formatMessage("translate.source.detect")], ...names] : names);
  const [transcribes, translates] = document.getElementsByName("speech-task");
  translates.disabled = languages.length < 2;
  if (translates.disabled) transcribes.checked = true;
}

const task = () => document.querySelector("[name=speech-task]:checked").value;

// What the server says of the whole; its segments come anew, with their words.
const factsOf = ({ facts: { segments, words, windows, ...facts } }) => facts;

const baseName = () => file.name.replace(/\.[^.]*$/, "");

function fields() {
  const language = byId("speech").value;
  return {
    model: chosenModel()?.id,
    ...(language && { language }),
    response_format: "verbose_json",
    "timestamp_granularities[]": ["segment", "word"],
  };
}

function choose([chosen]) {
  if (!chosen || !models.length) return;
  file = chosen;
  byId("recording-name").textContent = file.name;
  load(file);
  transcribe();
}

async function transcribe() {
  asking?.abort();
  if (!file) return;
  asking = new AbortController();
  const { signal } = asking;
  wasUnreachable = false;
  begin();
  await showingErrors(byId("transcribe-error"), async () => {
    try {
      await follow(signal);
    } catch (error) {
      wasUnreachable = error instanceof Unreachable;
      throw error;
    }
  });
  if (!signal.aborted) end();
}

function begin() {
  transcript = new Transcript();
  pointed = null;
  clearWords();
  clearSpectrogram();
  byId("sound-picture").hidden = true;
  offerTranslation(null);
  byId("transcribe-status").textContent = "";
  byId("transcribe-progress").removeAttribute("value");
  byId("transcribed").classList.remove("whole");
  byId("transcript").setAttribute("aria-busy", true);
}

async function follow(signal) {
  const form = new FormData();
  for (const [name, values] of Object.entries({ ...fields(), return_attention: true, stream: true })) {
    for (const value of [values].flat()) form.append(name, value);
  }
  form.append("file", file);
  const began = performance.now();
  for await (const event of streamForm(PATHS[task()], form, signal)) {
    if (signal.aborted) return;
    show(event);
  }
  byId("transcribe-status").textContent = summary((performance.now() - began) / 1000);
  if (!transcript.segments.length) byId("transcript").textContent = formatMessage("transcribe.nothing");
}

function show(event) {
  transcript.add(event);
  if (event.segment) addSegment(event.segment);
  if (event.segment && length()) byId("transcribe-progress").value = event.segment.end / length();
  if (event.window) {
    byId("sound-picture").hidden = false;
    showPicture();
  }
}

function stop() {
  if (byId("transcript").getAttribute("aria-busy") !== "true") return;
  asking.abort();
  byId("transcribe-status").textContent = formatMessage("transcribe.stopped");
  end();
}

// Shows what can be done with what there is of a transcript.
function end() {
  byId("transcript").setAttribute("aria-busy", false);
  if (!transcript.segments.length) return;
  byId("transcribed").classList.add("whole");
  byId("transcript").lang = languageOfText() ?? "";
  offerTranslation({ name: baseName(), language: languageOfText(), segments: transcript.segments });
  showPicture();
}

const languageOfText = () => (task() === "translate" ? "en" : byId("speech").value || transcript.facts.spoken_language);

// Says the language, if it was identified, and how long it took.
function summary(seconds) {
  const { spoken_language: language, language_probability: probability, duration } = transcript.facts;
  const identified = !byId("speech").value
    ? [formatMessage("translate.detected", { language: languageTitle(language), certainty: formatPercent(probability) })] : [];
  const time = formatMessage("transcribe.time-taken", { duration: formatClock(duration), seconds: formatNumber(seconds, ONE_DIGIT) });
  return [...identified, time].join("; ");
}

function showSpoken() {
  pointed = null;
  lightUp(transcript.wordAt(position()));
  showPicture();
}

// Draws the window of the word that was pointed at, or of the place in the recording.
function showPicture() {
  if (!transcript.windows.length || byId("sound-picture").hidden) return;
  const seconds = position();
  const word = pointed ?? transcript.wordAt(seconds);
  const window = (word && transcript.windowOf(word)) ?? transcript.windowAt(seconds);
  const end = Math.min(window.start + window.seconds, transcript.facts.duration ?? (length() || Infinity));
  drawSpectrogram({ window, end, word, seconds });
  byId("word-status").ariaLive = isPlaying() ? "off" : "polite"; // the words can be heard
  byId("word-status").textContent = word ? described(word) : formatMessage("transcribe.help");
}

const described = ({ word, start, end, probability }) => formatMessage("transcribe.word", {
  word: word.trim(), start: formatNumber(start, ONE_DIGIT), end: formatNumber(end, ONE_DIGIT), probability: formatPercent(probability),
});
