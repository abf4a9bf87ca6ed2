"""All that a server stores: the schemas of its tables, and the kinds of its files."""

from serving.access import fair_use, quota, rates
from serving.glossaries import store as glossaries
from serving.jobs import table as jobs
from serving.translation_memory import store as memories

SCHEMAS = (
    fair_use.SCHEMA,
    glossaries.SCHEMA,
    jobs.SCHEMA,
    memories.SCHEMA,
    quota.SCHEMA,
    rates.SCHEMA,
)
FILE_STORES = ("documents", "files", "memory-imports")
