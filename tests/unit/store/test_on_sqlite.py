"""The store on SQLite, so that a quick run of the tests covers it; tests/db runs the same on real servers too."""

from __future__ import annotations

from tests.db.test_api_records import *  # noqa: F403
from tests.db.test_cells import cells, mappings, one, test_gathering, test_hosts, test_the_cells_are_known  # noqa: F401  # noqa: F401
from tests.db.test_cells import test_a_server_is_found_from_its_request_to_its_end as test_finding  # noqa: F401
from tests.db.test_hosts import *  # noqa: F403
from tests.db.test_journal import *  # noqa: F403
from tests.db.test_runs import *  # noqa: F403
from tests.db.test_servers import *  # noqa: F403
