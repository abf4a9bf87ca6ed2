"""Whisper by transformers, one token after another, and the published loops around it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import WhisperConfig, WhisperForConditionalGeneration

from serving.audio.features import log_mel
from serving.bundle.manifest import AudioSpec
from tests.tiny import speech_tokenizer

ALIGNMENT_HEADS = [(0, 1), (1, 0), (1, 3)]  # layers and their heads


def save_random_whisper(folder: Path) -> None:
    """Save a random checkpoint of transformers, with windows of 2 s."""
    torch.manual_seed(4)
    tokenizer: Tokenizer = speech_tokenizer()
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        num_mel_bins=20,
        max_source_positions=100,
        max_target_positions=64,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        init_std=0.3,
        pad_token_id=256,
        bos_token_id=256,
        eos_token_id=256,
        decoder_start_token_id=257,
    )
    model = WhisperForConditionalGeneration(config).eval()
    model.save_pretrained(folder)
    settings = json.loads((folder / "generation_config.json").read_text())
    settings |= {
        "suppress_tokens": [5, 9],
        "begin_suppress_tokens": [7, 256],
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": 258, "<|fr|>": 259},
        "task_to_id": {"translate": 260, "transcribe": 261},
        "alignment_heads": ALIGNMENT_HEADS,
    }
    (folder / "generation_config.json").write_text(json.dumps(settings))
    tokenizer.save(str(folder / "tokenizer.json"))
    processor = {"feature_size": 20, "chunk_length": 2}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


@dataclass
class WrittenWindow:
    """The tokens of a window, their log-probabilities with that of the end, and the attention of
    the step that chose each, f32 [heads, steps, positions].
    """

    ids: list[int]
    logprobs: list[float]
    attention: np.ndarray
    no_speech: float


class NaiveWhisper:
    """A checkpoint of transformers, with the rules by which openai/whisper chooses tokens."""

    def __init__(self, folder: Path, audio: AudioSpec) -> None:
        self.model = WhisperForConditionalGeneration.from_pretrained(
            folder, attn_implementation="eager"
        ).eval()
        self.audio = audio
        settings = self.model.generation_config
        self.eos: int = settings.eos_token_id
        self.context: int = self.model.config.max_target_positions
        self.suppressed = settings.suppress_tokens or []
        self.suppressed_first = settings.begin_suppress_tokens or []

    @torch.no_grad()
    def write(
        self, samples: np.ndarray, previous: Sequence[int], forced: Sequence[int]
    ) -> WrittenWindow:
        """Write the likeliest tokens of a window."""
        audio = self.audio
        features = torch.tensor(log_mel(samples, audio))[None]
        encoded = self.model.model.encoder(features).last_hidden_state
        before = previous[-(self.context // 2 - 1) :]
        prompt = [audio.previous, *before, audio.start] if before else [audio.start]
        written: list[int] = []
        logprobs: list[float] = []
        attention: list[np.ndarray] = []
        no_speech = 0.0
        while True:
            ids = [*prompt, *forced, *written]
            out = self.model.model.decoder(
                input_ids=torch.tensor([ids]), encoder_hidden_states=encoded, output_attentions=True
            )
            logits = self.model.proj_out(out.last_hidden_state)[0].double()
            logp = logits.log_softmax(-1).numpy()
            if not written:
                no_speech = float(np.exp(logp[len(prompt) - 1, audio.no_speech]))
            if len(written) == self.context // 2 or len(ids) == self.context:
                break
            allowed = self.allow(logp[-1], written)
            token_id = int(allowed.argmax())
            logprobs.append(float(allowed[token_id] - np.logaddexp.reduce(allowed)))
            steps = [out.cross_attentions[layer][0, head, -1] for layer, head in ALIGNMENT_HEADS]
            attention.append(torch.stack(steps).numpy())
            if token_id == self.eos:
                break
            written.append(token_id)
        return WrittenWindow(written, logprobs, np.stack(attention, axis=1), no_speech)

    def allow(self, logp: np.ndarray, written: Sequence[int]) -> np.ndarray:
        """Return the scores after the filters of decoding.py."""
        logp = logp.copy()
        first_time, audio = self.audio.first_timestamp, self.audio
        logp[self.suppressed] = -np.inf
        if not written:
            logp[self.suppressed_first] = -np.inf
        logp[audio.no_timestamps] = -np.inf
        last_is_time = len(written) >= 1 and written[-1] >= first_time
        penultimate_is_time = len(written) < 2 or written[-2] >= first_time
        if last_is_time:
            if penultimate_is_time:
                logp[first_time:] = -np.inf
            else:
                logp[: self.eos] = -np.inf
        times = [token_id for token_id in written if token_id >= first_time]
        if times:
            ends_segment = last_is_time and not penultimate_is_time
            logp[first_time : times[-1] if ends_segment else times[-1] + 1] = -np.inf
        if not written:
            logp[:first_time] = -np.inf
            latest = first_time + round(audio.max_initial_timestamp / audio.timestamp_step)
            logp[latest + 1 :] = -np.inf
        if np.logaddexp.reduce(logp[first_time:]) > logp[:first_time].max():
            logp[:first_time] = -np.inf
        return logp


def transcribe_by_loops(
    whisper: NaiveWhisper, samples: np.ndarray, forced: Sequence[int]
) -> list[dict[str, Any]]:
    """The published `transcribe` at temperature 0 and without thresholds: its segments."""
    audio, tokenizer = whisper.audio, speech_tokenizer()
    num_frames = len(samples) // audio.hop
    seek = 0
    previous: list[int] = []
    segments: list[dict[str, Any]] = []
    while seek < num_frames:
        window = whisper.write(
            samples[seek * audio.hop : seek * audio.hop + audio.window_samples], previous, forced
        )
        tokens, size = window.ids, min(audio.num_frames, num_frames - seek)
        offset = seek * audio.hop / audio.sampling_rate
        is_time = [token >= audio.first_timestamp for token in tokens]
        single_ending = is_time[-2:] == [False, True]
        slices = [i for i in range(1, len(tokens)) if is_time[i - 1] and is_time[i]]
        current = []
        if slices:
            if single_ending:
                slices.append(len(tokens))
            last = 0
            for end in slices:
                part = tokens[last:end]
                start, stop = (
                    offset + (token - audio.first_timestamp) * audio.timestamp_step
                    for token in (part[0], part[-1])
                )
                current.append({"start": start, "end": stop, "tokens": part, "first": last})
                last = end
            moved = (tokens[last - 1] - audio.first_timestamp) * 2
            seek += size if single_ending else moved
        else:
            duration = size * audio.hop / audio.sampling_rate
            times = [token for token in tokens if token >= audio.first_timestamp]
            if times and times[-1] != audio.first_timestamp:
                duration = (times[-1] - audio.first_timestamp) * audio.timestamp_step
            stop = offset + duration
            current.append({"start": offset, "end": stop, "tokens": tokens, "first": 0})
            seek += size
        for segment in current:
            text = tokenizer.decode([token for token in segment["tokens"] if token < whisper.eos])
            if segment["start"] != segment["end"] and text.strip():
                segments.append(segment | {"window": window})
                previous += segment["tokens"]
    return segments
