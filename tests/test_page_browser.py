"""The page in a browser, on a phone and a laptop, light and dark: nothing clipped, nothing in the way."""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image as mpl_image
from studying import studied
from sweeping import SMALL, swept

from cluster_sim import cli
from cluster_sim.report.page import write_page

pytestmark = pytest.mark.slow
WIDTHS = (390, 1440)
LIMIT_S = 240
# What a browser measures of every figure that is shown: texts outside of it, and texts upon each other.
PROBE = """
<script>
const boxOf = (one) => one.getBoundingClientRect();
const found = {width: document.documentElement.scrollWidth, figures: 0, clipped: [], overlaps: []};
for (const svg of document.querySelectorAll("svg")) {
  const frame = boxOf(svg);
  if (!frame.width) continue;
  found.figures += 1;
  const texts = [...svg.querySelectorAll("text")].map((one) => [one.textContent, boxOf(one)]);
  for (const [words, box] of texts) {
    const [left, right] = [frame.left - box.left, box.right - frame.right];
    if (Math.max(left, right, frame.top - box.top, box.bottom - frame.bottom) > 1) found.clipped.push(words);
  }
  texts.forEach(([words, one], place) => texts.slice(place + 1).forEach(([others, other]) => {
    const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
    const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
    if (wide > 2 && high > 5) found.overlaps.push(words + " / " + others);
  }));
}
parent.postMessage(JSON.stringify(found), "*");
</script>
"""
FRAME = """
<script>
onmessage = (event) => {
  const box = document.createElement("pre");
  box.id = "probe";
  box.textContent = event.data;
  document.body.append(box);
};
</script>
<body style="margin:0"><iframe src="page.html" style="width:WIDTHpx;height:6000px;border:0"></iframe>
"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    sweep, study = tmp_path_factory.mktemp("sweep"), tmp_path_factory.mktemp("study")
    assert swept(sweep, *SMALL, "sweep.axes.workload.request_rate=[4,40,60]") == 0
    assert studied(study) == 0
    run = tmp_path_factory.mktemp("run")
    four = ["cluster.instances=4", "workload.request_rate=160", "workload.requests=400"]
    assert cli.main(["executor=serial", *four, "output.page=false", f"output.dir={run}"]) == 0
    return {"sweep": write_page(sweep), "study": write_page(study), "run": write_page(run)}


def pictures() -> Path | None:
    """Where PNG files are kept: the directory of CLUSTER_SIM_PICTURES, if it is set."""
    named = os.environ.get("CLUSTER_SIM_PICTURES")
    return Path(named) if named else None


def started(browser: str, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--hide-scrollbars", f"--user-data-dir={profile}", "--enable-logging=stderr"]
    return subprocess.run(
        [*command, "--virtual-time-budget=8000", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )


def probed(browser: str, page: Path, width: int, directory: Path) -> tuple[dict[str, Any], str]:
    """What PROBE finds on a copy of the page `width` pixels wide, and what the console says.

    A window of Chromium is at least 500 pixels wide: the copy is shown in a frame, which tells what it finds.
    """
    (directory / "page.html").write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    frame = directory / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    size = f"--window-size={max(width, 500)},900"
    done = started(browser, directory / "profile", size, "--dump-dom", frame.as_uri())
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert match is not None
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return json.loads(html.unescape(match.group(1))), console


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["sweep", "study", "run"])
def test_no_label_is_clipped_or_covered_and_no_page_scrolls_sideways(
    browser: str, pages: dict[str, Path], kind: str, width: int, tmp_path: Path
) -> None:
    found, console = probed(browser, pages[kind], width, tmp_path)
    assert console == ""
    assert found["width"] <= width
    assert found["figures"] == pages[kind].read_text().count("<figure>")
    assert found["clipped"] == []
    assert found["overlaps"] == []


def test_the_probe_sees_a_clipped_label_and_a_covered_one(browser: str, tmp_path: Path) -> None:
    texts = '<text x="-40" y="20">one</text><text x="20" y="20">two</text><text x="22" y="21">three</text>'
    page = tmp_path / "bad.html"
    page.write_text(f'<body><svg width="100" height="50" style="overflow:visible">{texts}</svg></body>')
    found, _ = probed(browser, page, 390, tmp_path)
    assert (found["clipped"], found["overlaps"]) == (["one"], ["two / three"])


@pytest.mark.parametrize("scheme", ["", "--force-dark-mode"])
def test_it_follows_a_light_or_dark_scheme(
    browser: str, pages: dict[str, Path], scheme: str, tmp_path: Path
) -> None:
    """Read from what is drawn: the first pixel is the paper's colour."""
    out = pictures() or tmp_path
    for kind, width in (("sweep", 1440), ("study", 500)):
        picture = out / f"{kind}-{width}{'-dark' if scheme else ''}.png"
        size = f"--window-size={width},6000"
        started(
            browser,
            tmp_path / "profile",
            size,
            f"--screenshot={picture}",
            *filter(None, [scheme]),
            pages[kind].as_uri(),
        )
        assert first_pixel(picture) == ((0x16, 0x18, 0x1A) if scheme else (0xFF, 0xFF, 0xFE))


def first_pixel(picture: Path) -> tuple[int, int, int]:
    image = mpl_image.imread(picture)
    red, green, blue = (round(255 * float(part)) for part in image[0, 0, :3])
    return red, green, blue
