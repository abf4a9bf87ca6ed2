"""Options of Whisper: an encoder of speech with a text decoder."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.configs.base import Activation, Conflict, Languages, Length, Section, Size, TokenId
from models.configs.transformer import BaseTransformerConfig, Learned


class Audio(Section):
    """How sound becomes log-mel spectrograms, and the tokens of transcripts (Radford et al. 2022).

    sampling_rate: samples a second, of one channel. num_mels: bands of the spectrogram. num_frames:
    frames of a window, which the encoder reads at once. hop: samples from the beginning of a frame
    to that of the next. fft_size: samples of a frame. The other options are as in
    `serving.bundle.manifest.AudioSpec`. alignment_heads: the heads of cross-attention that align
    words with sound, numbered through all layers; empty: those of the upper half of the layers.
    """

    sampling_rate: Size = 16000
    num_mels: Size = 80
    num_frames: Size = Field(default=3000, multiple_of=2)
    hop: Size = 160
    fft_size: Size = 400
    previous: TokenId = 3
    no_speech: TokenId = 4
    no_timestamps: TokenId = 5
    first_timestamp: TokenId = 6
    max_initial_timestamp: float = Field(default=1.0, ge=0.0)
    languages: dict[str, TokenId] = Field(default_factory=dict)
    transcribe: TokenId | None = None
    translate: TokenId | None = None
    alignment_heads: tuple[TokenId, ...] = Field(default=(), strict=False)  # in files a list

    @property
    def num_positions(self) -> int:
        """The number of vectors that the decoder attends to: one for two frames."""
        return self.num_frames // 2

    @property
    def timestamp_step(self) -> float:
        """The seconds from one vector, and from one token of a time, to the next."""
        return 2 * self.hop / self.sampling_rate

    @property
    def token_ids(self) -> dict[str, int]:
        """The tokens by the names of their options. The last one is that of a window's end."""
        tasks = {"transcribe": self.transcribe, "translate": self.translate}
        return {
            **{f"languages.{code}": token_id for code, token_id in self.languages.items()},
            **{task: token_id for task, token_id in tasks.items() if token_id is not None},
            "previous": self.previous,
            "no_speech": self.no_speech,
            "no_timestamps": self.no_timestamps,
            "first_timestamp": self.first_timestamp,
            "last timestamp": self.first_timestamp + self.num_positions,
        }


class WhisperConfig(BaseTransformerConfig):
    """A Transformer whose encoder reads the spectrogram of a window of sound through two
    convolutions, and whose decoder writes what is said (Radford et al. 2022). `bos_id` is the token
    that transcripts start with.
    """

    architecture: Literal["whisper"] = "whisper"
    task: Literal["transcribe"] = "transcribe"  # type: ignore[assignment]
    audio: Audio = Audio()
    source_languages: Languages = ("en",)
    target_languages: Languages = ("en",)
    positions: Learned = Learned()
    activation: Activation = "gelu"
    max_source_tokens: Size = 1500
    max_target_tokens: Length = 448

    @property
    def scale_of_embeddings(self) -> float:
        """Embeddings are added to positions as they are."""
        return 1.0

    @property
    def alignment_heads(self) -> tuple[int, ...]:
        """The heads that align words, numbered through all layers; by default as openai/whisper,
        `Whisper.__init__` chooses them.
        """
        first = self.decoder_layers // 2 * self.num_heads
        every = tuple(range(first, self.decoder_layers * self.num_heads))
        return self.audio.alignment_heads or every

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        audio, max_source = self.audio, self.max_source_tokens
        if max_source != audio.num_positions:
            message = f"max_source_tokens {max_source} must be half of audio.num_frames"
            yield Conflict(("audio", "max_source_tokens"), f"{message} {audio.num_frames}")
        for name, token_id in audio.token_ids.items():
            if token_id >= self.vocab_size:
                message = f"audio: {name} {token_id} must be less than {self.vocab_size}"
                yield Conflict(("audio", "vocab_size"), f"{message}, the vocab_size")
        if max(self.alignment_heads) >= self.decoder_layers * self.num_heads:
            message = f"audio.alignment_heads {max(self.alignment_heads)} is no head of a decoder"
            layers = f"of {self.decoder_layers} layers with {self.num_heads} heads"
            yield Conflict(("audio", "decoder_layers", "num_heads"), f"{message} {layers}")
