"""The documentation's site: what `mkdocs build` does not do by itself with the pages of docs/."""
