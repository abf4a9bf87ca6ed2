"""Bodies and jobs have what is declared of an option of translation."""

from dataclasses import fields

import pytest

from serving.api.deepl.translate import TextsBody
from serving.api.libretranslate.translate import TranslateBody
from serving.pipelines.translation.job import TranslationJob
from serving.pipelines.translation.options import TRANSLATION_OPTIONS, TranslationOption

EN_FR = {"q": "a dog", "source": "en", "target": "fr"}
OTHER_VALUES = {str: "Un", int: 3}


@pytest.mark.parametrize("option", TRANSLATION_OPTIONS.values(), ids=lambda option: option.name)
def test_a_body_has_the_declared_field(option: TranslationOption) -> None:
    field = TranslateBody.model_fields[option.name]
    assert (field.default, field.description) == (option.default, option.help)
    assert getattr(TranslateBody.model_validate(EN_FR).job(""), option.job_field) == option.default


@pytest.mark.parametrize("option", TRANSLATION_OPTIONS.values(), ids=lambda option: option.name)
def test_a_value_reaches_the_job(option: TranslationOption) -> None:
    assert option.job_field in {field.name for field in fields(TranslationJob)}
    value = OTHER_VALUES.get(type(option.default), not option.default)
    fields_needed = {"alternatives": 2} if option.name == "alternatives_at_prefix" else {}
    body = TranslateBody.model_validate(EN_FR | fields_needed | {option.name: value})
    assert getattr(body.job(""), option.job_field) == value


def test_protocols_describe_an_option_alike() -> None:
    assert TextsBody.model_fields["quality"].description == TRANSLATION_OPTIONS["quality"].help
