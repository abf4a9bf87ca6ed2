// Records from the microphone, and shows how loud it is.

import { byId } from "../common/elements.js";
import { formatMessage } from "../common/messages.js";
import { Refused, showingErrors } from "../common/server.js";
import { formatClock } from "./times.js";

const TYPES = { "audio/webm;codecs=opus": "webm", "audio/mp4": "m4a", "audio/ogg;codecs=opus": "ogg" };
const QUIETEST_DECIBELS = -60; // of full scale, where the meter is empty

// Why there is no sound, by the names of getUserMedia's errors.
const REFUSALS = {
  NotAllowedError: "transcribe.microphone.denied",
  NotFoundError: "transcribe.microphone.none",
  NotReadableError: "transcribe.microphone.busy",
};

let recorder = null;

// take: is called with the list of the recorded file.
export function beginRecording(take) {
  byId("record").addEventListener("click", () => {
    if (recorder) recorder.stop();
    else showingErrors(byId("transcribe-error"), () => record(take));
  });
}

async function record(take) {
  const stream = await openMicrophone();
  const type = Object.keys(TYPES).find((type) => MediaRecorder.isTypeSupported(type));
  const parts = [];
  recorder = new MediaRecorder(stream, { mimeType: type });
  recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
  const endMeter = beginMeter(stream);
  recorder.addEventListener("stop", () => {
    recorder = null;
    for (const track of stream.getTracks()) track.stop(); // else the browser says that it still listens
    endMeter();
    setRecording(false);
    const name = `${formatMessage("transcribe.recording.name")}.${TYPES[type]}`;
    take([new File(parts, name, { type: type.split(";")[0] })]);
  });
  recorder.start();
  setRecording(true);
}

async function openMicrophone() {
  if (!navigator.mediaDevices) throw new Refused(formatMessage("transcribe.microphone.insecure"));
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch (error) {
    throw error.name in REFUSALS ? new Refused(formatMessage(REFUSALS[error.name])) : error;
  }
}

function setRecording(isRecording) {
  byId("record").setAttribute("aria-pressed", isRecording);
  byId("record").lastElementChild.textContent = formatMessage(isRecording ? "transcribe.record.stop" : "transcribe.record");
  byId("level").classList.toggle("invisible", !isRecording);
  byId("recorded").textContent = "";
}

// Shows the level and the length of a recording. Returns what ends it.
function beginMeter(stream) {
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  const began = performance.now();
  let frame = 0;
  const show = () => {
    analyser.getFloatTimeDomainData(samples);
    byId("level").value = levelOf(samples);
    byId("recorded").textContent = formatClock((performance.now() - began) / 1000);
    frame = requestAnimationFrame(show);
  };
  show();
  return () => {
    cancelAnimationFrame(frame);
    context.close();
  };
}

// Returns the root mean square of samples in decibels, as a share of the meter.
function levelOf(samples) {
  const power = samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
  return Math.max(0, 1 - (10 * Math.log10(power)) / QUIETEST_DECIBELS);
}
