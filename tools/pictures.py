"""Makes docs/pictures/{report,search}.png from a study's report, in headless Chromium.

Run `make run && .venv/bin/python tools/pictures.py out/spectrum.study`.
"""

from __future__ import annotations

import base64
import shutil
import sys
import tempfile
from pathlib import Path

from heapwright.report.html import write_report
from heapwright.study.load import load_view

OUT = Path(__file__).parents[1] / "docs/pictures"
WIDTH = 1000
# name → ids of the headings where the picture begins and before which it ends; None: the top of the
# page
PARTS = {"report": (None, "s1-pick-"), "search": ("s1-search", "s1-default")}


def main(study: Path) -> None:
    """Writes both pictures."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=options, service=service)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report([load_view(study)], page)
        size = {"width": WIDTH, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.as_uri())
        for name, (first, last) in PARTS.items():
            top, bottom = (browser.execute_script(PLACE, id_) if id_ else 0 for id_ in (first, last))
            clip = {"x": 0, "y": top, "width": WIDTH, "height": bottom - top, "scale": 1}
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            (OUT / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))
    browser.quit()


PLACE = """
const found = document.querySelector(`h2[id^="${arguments[0]}"], h3[id^="${arguments[0]}"]`);
return Math.floor(found.getBoundingClientRect().top + scrollY) - 8;
"""

if __name__ == "__main__":
    main(Path(sys.argv[1]))
