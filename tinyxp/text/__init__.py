"""Text: tokenizers, their training, corpora, and the windows that models are trained on."""
