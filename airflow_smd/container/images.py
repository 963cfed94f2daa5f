"""From an image file to a sample of a size that training wants.

Runs in the container: standard library at import, Python 3.9; Pillow is imported when the work starts.
"""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from .samples import Bad, Labels, Sample, key_of, npy_bytes

_WHITE = (255, 255, 255)


class Images:
    """Decode, turn upright, resize the short side, encode again; `.jpg`, `.png` or `.npy` and `.cls`.

    CMYK, palette, grey, 16-bit and transparent images become RGB (transparency on white); of an animation the
    first frame is taken; each such treatment is counted. What cannot be decoded is bad.

    Args:
        size: the short side in pixels.
        encode: `jpeg`, `png`, or `raw` (uint8, height × width × 3, no decoding in training).
        quality: of JPEG, 1 to 95.
        enlarge: whether images with a smaller short side grow to `size`.
        class_from: as for `copy`.
        classes: as for `copy`.
    """

    def __init__(
        self,
        *,
        size: int = 256,
        encode: str = "jpeg",
        quality: int = 90,
        enlarge: bool = False,
        class_from: str = "directory",
        classes: Sequence[str] | None = None,
    ) -> None:
        from PIL import Image, ImageOps, UnidentifiedImageError

        warnings.simplefilter("error", Image.DecompressionBombWarning)
        self._image, self._upright, self._unknown = Image, ImageOps.exif_transpose, UnidentifiedImageError
        self.size, self.encode, self.quality, self.enlarge = size, encode, quality, enlarge
        self.label = Labels(class_from, classes)
        self.schema: dict[str, Any] = {"encode": encode, "size": size}
        self.seen = self.label.seen
        self.treated: Counter[str] = Counter()

    def __call__(self, path: Path, name: str) -> Iterator[Sample | Bad]:
        """Yield the image as one sample, or why it is none."""
        try:
            if path.stat().st_size == 0:
                yield Bad(name, "empty-file", "0 bytes")
                return
            with self._image.open(path) as image:
                treatments = self._treatments(image)
                sample = {"__key__": key_of(name), **self._encoded(self._resized(self._rgb(image)))}
        except self._unknown:
            yield Bad(name, "not-an-image", "Pillow knows no such format")
        except (self._image.DecompressionBombWarning, self._image.DecompressionBombError) as error:
            yield Bad(name, "too-large", str(error))
        except (OSError, SyntaxError, ValueError, EOFError) as error:
            # Pillow's decoders raise any of these for damaged files
            yield Bad(name, "undecodable", str(error) or type(error).__name__)
        else:
            self.treated.update(treatments)
            yield self.label.put(sample, name)

    def _treatments(self, image: Any) -> Sequence[str]:
        orientation = image.getexif().get(0x0112, 1)
        return [
            word
            for word, holds in (
                ("animated", getattr(image, "n_frames", 1) > 1),
                ("rotated", orientation not in (0, 1)),
                ("cmyk", image.mode == "CMYK"),
                ("16-bit", image.mode.startswith("I")),
                ("transparent", image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info),
            )
            if holds
        ]

    def _rgb(self, image: Any) -> Any:
        image.load()
        image = self._upright(image)
        if image.mode.startswith("I"):
            return image.convert("I").point(lambda value: value * (1 / 256)).convert("L").convert("RGB")
        if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
            image = image.convert("RGBA")
            ground = self._image.new("RGBA", image.size, (*_WHITE, 255))
            return self._image.alpha_composite(ground, image).convert("RGB")
        return image if image.mode == "RGB" else image.convert("RGB")

    def _resized(self, image: Any) -> Any:
        short = min(image.size)
        if short == self.size or (short < self.size and not self.enlarge):
            return image
        width, height = (max(1, round(side * self.size / short)) for side in image.size)
        return image.resize((width, height), self._image.Resampling.BILINEAR)

    def _encoded(self, image: Any) -> dict[str, bytes]:
        if self.encode == "raw":
            return {"npy": npy_bytes("B", (image.height, image.width, 3), image.tobytes())}
        target = io.BytesIO()
        if self.encode == "png":
            image.save(target, "PNG")
            return {"png": target.getvalue()}
        image.save(target, "JPEG", quality=self.quality)
        return {"jpg": target.getvalue()}
