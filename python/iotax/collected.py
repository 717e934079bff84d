"""One run of a study out of a notebook, as `analysis.summarise` takes it."""

from iotax.analysis import StudyData
from iotax.notebook import Notebook
from iotax.study.imported import ImportedStudy


def study_data(notebook: Notebook, run: int | None = None) -> StudyData:
    """The latest run when none is given."""
    study = notebook.study(run)
    # What an import took says nothing about how long its runs did.
    took = [] if isinstance(study, ImportedStudy) else notebook.invocations(run)
    return StudyData(
        study=study,
        attempts=notebook.attempts(run),
        planned=notebook.trials(run),
        backgrounds=notebook.backgrounds(run),
        preconditionings=notebook.preconditionings(run),
        environment=notebook.environment(run),
        looks=notebook.looks(run),
        earlier_runs=notebook.earlier_runs(run),
        wall_ns=sum(ended - began for began, ended in took),
    )
