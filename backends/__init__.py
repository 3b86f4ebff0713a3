"""The adapters of the array libraries, one file each; ``tinyxp.registry`` finds them by entry points."""
