"""Text: tokenizers, corpora and windows of ids."""
