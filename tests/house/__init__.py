"""The rules of the house that no linter knows: plain English, and subjects of commits."""
