"""Programs for people who work on tinyxp; the wheel does not contain them."""
