"""All that a server stores: the schemas of its tables, and the kinds of its files."""

from serving.access import quota
from serving.glossaries import store as glossaries

SCHEMAS = (glossaries.SCHEMA, quota.SCHEMA)
FILE_STORES = ("documents", "files", "memory-imports")
