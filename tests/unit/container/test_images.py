import io

import numpy
import pytest
from PIL import Image

from airflow_smd.container.images import Images
from airflow_smd.container.samples import Bad


def photo(mode="RGB", size=(500, 375)):
    pixels = numpy.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype="u1")
    return Image.fromarray(pixels).convert(mode)


def encoded(image, kind, **options):
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


def made(transform, tmp_path, content, name="a.img"):
    (tmp_path / name).write_bytes(content)
    (result,) = transform(tmp_path / name, name)
    return result


def opened(sample):
    return Image.open(io.BytesIO(sample["png"]))


def rotated(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(photo(), "JPEG", exif=exif)


def animated():
    return encoded(photo("P"), "GIF", save_all=True, append_images=[photo("P", (500, 375)).rotate(90)])


@pytest.mark.parametrize(
    ("content", "treated", "size"),
    [
        pytest.param(encoded(photo(), "JPEG"), {}, (341, 256), id="JPEG"),
        pytest.param(encoded(photo(size=(375, 500)), "PNG"), {}, (256, 341), id="upright PNG"),
        pytest.param(encoded(photo("CMYK"), "JPEG"), {"cmyk": 1}, (341, 256), id="CMYK JPEG"),
        pytest.param(encoded(photo("L"), "JPEG"), {}, (341, 256), id="grey JPEG"),
        pytest.param(encoded(photo("1"), "PNG"), {}, (341, 256), id="black and white"),
        pytest.param(encoded(photo("P"), "PNG"), {}, (341, 256), id="palette"),
        pytest.param(encoded(photo("RGBA"), "PNG"), {"transparent": 1}, (341, 256), id="transparent"),
        pytest.param(encoded(photo("LA"), "PNG"), {"transparent": 1}, (341, 256), id="transparent grey"),
        pytest.param(rotated(6), {"rotated": 1}, (256, 341), id="EXIF: turned by 90 degrees"),
        pytest.param(rotated(3), {"rotated": 1}, (341, 256), id="EXIF: upside down"),
        pytest.param(rotated(1), {}, (341, 256), id="EXIF: upright"),
        pytest.param(animated(), {"animated": 1}, (341, 256), id="animated GIF"),
        pytest.param(encoded(photo(), "WEBP"), {}, (341, 256), id="WebP"),
        pytest.param(encoded(photo(), "TIFF"), {}, (341, 256), id="TIFF"),
        pytest.param(encoded(photo(size=(40, 30)), "PNG"), {}, (40, 30), id="smaller than wanted"),
        pytest.param(encoded(photo(size=(3000, 1)), "PNG"), {}, (3000, 1), id="one pixel high"),
    ],
)
def test_every_kind_becomes_rgb_of_the_wanted_short_side(tmp_path, content, treated, size):
    transform = Images(encode="png")

    image = opened(made(transform, tmp_path, content))

    assert (image.mode, image.size, dict(transform.treated)) == ("RGB", size, treated)


def test_sixteen_bits_are_scaled_and_not_cut(tmp_path):
    deep = Image.fromarray(numpy.full((300, 300), 0x8000, dtype="u2"))
    transform = Images(encode="png")

    image = opened(made(transform, tmp_path, encoded(deep, "PNG")))

    assert (image.getpixel((0, 0)), dict(transform.treated)) == ((128, 128, 128), {"16-bit": 1})


def test_transparency_is_laid_on_white(tmp_path):
    clear = Image.new("RGBA", (300, 300), (255, 0, 0, 0))

    image = opened(made(Images(encode="png"), tmp_path, encoded(clear, "PNG")))

    assert image.getpixel((5, 5)) == (255, 255, 255)


def test_small_images_grow_when_asked(tmp_path):
    image = opened(made(Images(encode="png", enlarge=True), tmp_path, encoded(photo(size=(40, 30)), "PNG")))

    assert min(image.size) == 256


def test_the_pixels_are_pillows_own(tmp_path):
    content = encoded(photo(), "JPEG")

    image = opened(made(Images(encode="png"), tmp_path, content))

    expected = Image.open(io.BytesIO(content)).resize((341, 256), Image.Resampling.BILINEAR)
    assert image.tobytes() == expected.tobytes()


def test_raw_needs_no_decoding_in_training(tmp_path):
    sample = made(Images(encode="raw"), tmp_path, encoded(photo(), "PNG"))

    pixels = numpy.load(io.BytesIO(sample["npy"]))
    assert (pixels.shape, pixels.dtype) == ((256, 341, 3), numpy.uint8)


WHOLE = encoded(photo(), "JPEG")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"", "empty-file", id="empty"),
        pytest.param(b"hello", "not-an-image", id="text"),
        pytest.param(b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not-an-image", id="SVG"),
        pytest.param(WHOLE[: len(WHOLE) // 2], "undecodable", id="half a JPEG"),
        pytest.param(WHOLE[:20], "not-an-image", id="a JPEG's first bytes"),
        pytest.param(encoded(photo(), "PNG")[:5000], "undecodable", id="half a PNG"),
        pytest.param(b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "not-an-image", id="only a PNG's signature"),
        pytest.param(encoded(Image.new("1", (20_000, 20_000)), "PNG"), "too-large", id="a bomb"),
    ],
)
def test_what_cannot_be_decoded_is_bad_and_named(tmp_path, content, reason):
    bad = made(Images(), tmp_path, content)

    assert isinstance(bad, Bad)
    assert (bad.source, bad.reason) == ("a.img", reason)
