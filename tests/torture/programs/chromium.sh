# Opens a report in headless Chromium; prints the page after its scripts ran, and a digest of its picture. Without
# --run-all-compositor-stages-before-draw, a busy machine sometimes takes the picture half-way. With it, a picture still
# differs now and then, so the picture that comes twice in succession counts.
look() {
  rm -rf profile
  chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-extensions \
    --user-data-dir="$PWD/profile" --virtual-time-budget=3000 --run-all-compositor-stages-before-draw \
    --disable-checker-imaging --disable-threaded-animation --disable-lcd-text --hide-scrollbars --window-size=1280,2400 "$@" "file://$PAGE" 2>>log
  echo "exit status $?"
}
look --dump-dom | tee dom | cksum
wc -l <dom
last=none
for _ in 1 2 3 4 5 6; do
  look --screenshot="$PWD/page.png" >/dev/null
  now=$(sha256sum <page.png)
  [ "$now" = "$last" ] && break
  last=$now
done
"$PYTHON" - <<'PYTHON'
import hashlib
from matplotlib.image import imread
pixels = imread("page.png")
print(pixels.shape, hashlib.sha256(pixels.tobytes()).hexdigest(), len({tuple(p) for p in pixels[::7, ::7].reshape(-1, pixels.shape[2])}) > 9)
PYTHON
[ "$SIZE" = long ] && look --force-dark-mode --print-to-pdf="$PWD/page.pdf" >/dev/null && head -c 4 page.pdf && echo
exit 0
