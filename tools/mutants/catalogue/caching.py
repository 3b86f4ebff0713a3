"""Mutants of the cache: its slots, its counters, and what a cached pass sees."""

from ..mutant_registry import Patch, mutant

SEEN = "visible = (slots <= cache.used + columns[:, None]) & real[:, None, None, :]"
GOES_ON = "positions = positions + cache.next_position[:, None]"
NEXT = "after = xp.max(xp.where(new, positions + 1, cache.next_position[:, None]), axis=-1)"
WRITTEN = "written: Array = xp.where(inside[:, None], spread, cache)"

mutant(
    "cache-slot-off-by-one",
    "New columns are written one slot too late.",
    Patch("ops", "source = slots - start ", "source = slots - start - 1 "),
    region="cache",
    killers="new-columns-take-their-slots cache-equals-full-pass",
)
mutant(
    "cache-positions-from-0",
    "A cached pass counts its positions from 0 again.",
    Patch("cache", GOES_ON, "positions = positions + 0 * cache.next_position[:, None]"),
    region="cache",
    killers="cache-equals-full-pass given-positions-with-a-cache",
)
mutant(
    "cache-positions-of-slots",
    "Positions of a cached pass continue from the number of used slots, so padding is counted.",
    Patch("cache", GOES_ON, "positions = positions + cache.used"),
    region="cache",
    killers="padded-cache-equals-full-pass given-positions-with-a-cache",
)
mutant(
    "cache-next-position-of-columns",
    "The next position grows by all columns of a pass, including padding.",
    Patch("cache", NEXT, "after = cache.next_position + t"),
    region="cache",
    killers="padded-cache-equals-full-pass given-positions-with-a-cache",
)
mutant(
    "cache-not-advanced",
    "The number of used slots is not updated: each pass overwrites the one before it.",
    Patch("cache", "used=cache.used + t", "used=cache.used"),
    region="cache",
    killers="cache-equals-full-pass padded-cache-equals-full-pass",
)
mutant(
    "cache-advanced-by-one",
    "The number of used slots grows by one for a chunk of any length.",
    Patch("cache", "used=cache.used + t", "used=cache.used + 1"),
    region="cache",
    killers="cache-equals-full-pass padded-cache-equals-full-pass",
)
mutant(
    "cache-of-keys-twice",
    "Keys are stored in place of values.",
    Patch("model", "        cache = (k, v)", "        cache = (k, k)"),
    region="cache",
    killers="cache-equals-full-pass padded-cache-equals-full-pass",
)
mutant(
    "cache-changed-in-place",
    "Writing changes the older cache.",
    Patch(
        "ops", WRITTEN, "cache[...] = xp.where(inside[:, None], spread, cache)\n    written: Array = cache"
    ),
    region="cache",
    killers="a-cache-can-branch write-cache-leaves-its-arguments",
)
mutant(
    "cache-empty-slots-seen",
    "A cached pass attends to slots that nothing was written to.",
    Patch("cache", SEEN, f"{SEEN}\n    visible = visible | (slots >= cache.used + t)"),
    region="cache",
    killers="cache-equals-full-pass padded-cache-equals-full-pass",
)
mutant(
    "cache-chunk-sees-itself-whole",
    "Within a chunk every token sees every other: causality holds between chunks only.",
    Patch("cache", SEEN, SEEN.replace("columns[:, None]", "t - 1 + 0 * columns[:, None]")),
    region="cache",
    killers="cache-equals-full-pass padded-cache-equals-full-pass",
)
mutant(
    "cache-chunk-masked-from-the-start",
    "The triangle of a chunk is not shifted to the chunk's place in the cache.",
    Patch("cache", SEEN, SEEN.replace("cache.used + ", "")),
    region="cache",
    killers="cache-equals-full-pass padded-cache-equals-full-pass",
)
mutant(
    "cache-padding-of-a-chunk-kept",
    "The mask of new columns is not stored: padding becomes real.",
    Patch(
        "cache",
        "new = xp.ones((b, t), dtype=xp.bool, device=device) if mask is None else mask",
        "new = xp.ones((b, t), dtype=xp.bool, device=device)",
    ),
    region="cache",
    killers="padded-cache-equals-full-pass padding-invariance-with-a-cache",
)
mutant(
    "cache-padding-of-earlier-chunks-forgotten",
    "Padding is hidden within its chunk but visible to later ones.",
    Patch(
        "cache",
        "ops.write_cache(cache.real[:, None, :, None]",
        "ops.write_cache((cache.real | (slots < cache.used))[:, None, :, None]",
    ),
    region="cache",
    killers="padded-cache-equals-full-pass padding-invariance-with-a-cache",
)
mutant(
    "cache-rows-of-the-first",
    "The stored mask of the first row is used for all rows.",
    Patch("cache", SEEN, SEEN.replace("real[:,", "real[:1,")),
    region="cache",
    killers="padded-cache-equals-full-pass padding-invariance-with-a-cache",
)
mutant(
    "last-column-for-last-real",
    "The logits of the last column are returned although it is padding in some rows.",
    Patch(
        "model",
        "    if inputs.mask is None:\n        return x[:, t - 1 :, :]",
        "    if True:\n        return x[:, t - 1 :, :]",
    ),
    region="cache",
    killers="last-is-the-last-real-column",
)
mutant(
    "cache-values-written-in-place",
    "A cached pass writes its values into the arrays of the older cache.",
    Patch(
        "model",
        "        cache = (k, v)",
        "        cache[1][...] = v\n        cache = (k, cache[1])",
    ),
    region="cache",
    killers="a-cache-can-branch",
)
