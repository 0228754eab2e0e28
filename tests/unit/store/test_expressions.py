"""Regular expressions of users: what they find, what is none, and that none of them holds the process."""

import time

import pytest

from kilonova.base.errors import BadRequest
from kilonova.store.expressions import compiled


@pytest.mark.parametrize(
    "pattern, text", [("WEB", "my-web-1"), ("^b$", "a\nb"), ("É", "é"), (r"web-\d+", "web-12"), ("a.c", "xabcx")]
)
def test_it_searches_anywhere_line_by_line_and_ignores_case(pattern: str, text: str) -> None:
    assert compiled(pattern).search(text)
    assert not compiled(pattern).search("nothing of it")


@pytest.mark.parametrize("pattern", ["(", "*", "[", r"(a)\1", "(?=a)", "((a{1000}){1000}){1000}", "\ud800"])
def test_what_is_no_expression_is_a_bad_request(pattern: str) -> None:
    with pytest.raises(BadRequest, match="is not a regular expression"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+$b", "(a|aa)+$b", ".*" * 12 + "b", "(((a*)*)*)*b"])
def test_no_expression_takes_more_time_than_the_text_is_long(pattern: str) -> None:
    begun = time.monotonic()
    assert not compiled(pattern).search("a" * 255)
    assert time.monotonic() - begun < 1
