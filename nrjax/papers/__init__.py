"""The papers whose experiments nrjax reproduces: each a study, with its own settings and words."""
