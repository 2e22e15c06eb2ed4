"""The prompts of a report, with what their clips must show where that is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import RequestError
from ...jobs.lines import read_lines
from ...request import GenerationRequest


@dataclass(frozen=True)
class Prompt:
    """`number` counts within a workflow. `expected`: attributes of the embedded model's world by name, or nothing."""

    workflow: str
    number: int
    request: GenerationRequest
    expected: dict[str, str]


def suite_prompts(workflows: Sequence[str], count: int, folder: Path) -> list[Prompt]:
    """`count` prompts of the embedded model for each workflow; the pictures that they show are written into `folder`.

    RequestError for an unknown workflow.
    """
    from ...demo.suite import WORKFLOWS, make_cases

    if unknown := [name for name in workflows if name not in WORKFLOWS]:
        raise RequestError(f"workflow {unknown[0]!r} is not one of {', '.join(WORKFLOWS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    return [
        Prompt(workflow, number, case.request, case.expected)
        for workflow in workflows
        for number, case in enumerate(make_cases(workflow, count, folder.absolute()))
    ]


def file_prompts(path: Path, workflows: Sequence[str], count: int | None) -> list[Prompt]:
    """The first `count` prompts (all without it) of each workflow in a job file.

    What a clip must show is read from the prompt and its picture. RequestError names every bad line, and a workflow
    without a prompt.
    """
    from ...demo.suite import read_cases

    path = path.absolute()
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise RequestError(f"the job file {path} cannot be read: {error.strerror}.") from error
    read_lines(lines, str(path), path.parent)
    prompts: list[Prompt] = []
    for case in read_cases(path):
        workflow = case.request.workflow
        number = sum(prompt.workflow == workflow for prompt in prompts)
        if workflow in workflows and (count is None or number < count):
            prompts.append(Prompt(workflow, number, case.request, case.expected))
    if without := set(workflows) - {prompt.workflow for prompt in prompts}:
        raise RequestError(f"{path} holds no prompt for {', '.join(sorted(without))}: add one, or leave it out.")
    return prompts
