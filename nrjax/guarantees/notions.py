"""The privacy notions of guarantees and filters: the meaning of an epsilon and a delta."""

from nrjax._base.notions import Notion as Notion
from nrjax._base.notions import notion_of as notion_of
from nrjax._base.notions import notions_comparable as notions_comparable
from nrjax._base.notions import notions_differ as notions_differ

NOTIONS: dict[str, str] = {notion: notion.meaning for notion in Notion}
"""The meaning of each privacy notion, by its name.

The last notion applies to filters, whose epsilon is a constant.
"""

PUBLIC_TEST = "Public test: epsilon does not cover the decision to stop"
"""The words of every report on cases whose rule reads the score without noise."""
