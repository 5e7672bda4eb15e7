"""The race of mechanisms that answer a question, behind `nrjax.choose`."""
