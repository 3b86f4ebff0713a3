"""Programs that judge this source or write its pages. They are not part of the package."""
