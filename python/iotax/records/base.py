"""Properties shared by all records."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """An immutable record that survives newer writers: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)
