from __future__ import annotations

import sys

from .contest import result
from .contests import CONTESTS

for name in sys.argv[1:] or CONTESTS:
    found = result(CONTESTS[name](), 7)
    print(name)
    for k, v in found["ms"].items():
        print(f"   {k:32} {v[0]:10.3f} [{v[1]:.3f}, {v[2]:.3f}]")
    for r in found["ratios"]:
        flag = "" if r["goal"] is None else ("ok" if r["ratio"] <= r["goal"] else "MISSED")
        print(f"   {r['of']:24} / {r['against']:26} {r['ratio']:.3f}  goal {r['goal']} {flag}")
    sys.stdout.flush()
