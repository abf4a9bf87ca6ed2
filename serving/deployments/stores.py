"""All that a server stores: the schemas of its tables, and the kinds of its files."""

from serving.access import quota
from serving.glossaries import store as glossaries
from serving.jobs import table as jobs

SCHEMAS = (glossaries.SCHEMA, jobs.SCHEMA, quota.SCHEMA)
FILE_STORES = ("documents", "files", "memory-imports")
