"""What a server stores: the schemas of all its databases."""

from serving.storage.schema import Schema

SCHEMAS: tuple[Schema, ...] = ()
