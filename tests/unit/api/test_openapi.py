"""The description of the API: complete, valid, and readable without anything from elsewhere."""

from __future__ import annotations

import re

import jsonschema_rs
import pytest
from flask import Flask

from app.api import openapi
from app.api.application import create_app
from app.settings import Settings


@pytest.fixture(scope="module")
def app() -> Flask:
    return create_app(Settings(database_url="postgresql:///nowhere"))


def test_every_route_is_described_and_nothing_else(app: Flask) -> None:
    routes = {rule.endpoint for rule in app.url_map.iter_rules()}
    assert routes - openapi.ENDPOINTS.keys() == {"openapi.show", "docs.show_page", "docs.style"}
    assert openapi.ENDPOINTS.keys() <= routes


def test_it_is_openapi_with_schemas_that_are_such(app: Flask) -> None:
    document = app.test_client().get("/openapi.json").json
    assert document is not None
    assert document["openapi"] == "3.1.0"
    text = str(document)
    for name in re.findall(r"#/components/schemas/([\w.]+)", text):
        assert name in document["components"]["schemas"]
    for name, schema in document["components"]["schemas"].items():
        jsonschema_rs.meta.validate(schema | {"$schema": "https://json-schema.org/draft/2020-12/schema"})
        assert schema.get("description"), f"{name} says nothing about itself"
    ids = [told["operationId"] for path in document["paths"].values() for told in path.values()]
    assert len(ids) == len(set(ids))


def test_the_page_names_everything_and_fetches_nothing_from_elsewhere(app: Flask) -> None:
    answer = app.test_client().get("/docs")
    assert answer.status_code == 200
    for path, methods in openapi.document(app)["paths"].items():
        assert path in answer.text
        for told in methods.values():
            assert told["summary"] in answer.text
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "<script" not in answer.text
    assert " style=" not in answer.text
    assert not re.search(r"""(src|href)=["'](https?:)?//""", answer.text)
    assert app.test_client().get("/docs/docs.css").mimetype == "text/css"
