"""The scaffold: a paper module and its test, which run at once and are filled in from top to bottom.

`your_paper.py` and `twins.py` are modules like any other, so that they are linted, typed and tested; what is
written is their text under another name.
"""

import keyword
from importlib import resources
from pathlib import Path

from descentlab.errors import SettingError
from descentlab.papers import names
from descentlab.places import OWN_PAPERS
from descentlab.store import write_entry, writing

RESERVED = ("atlas",)  # `descentlab reproduce` takes it beside names of papers
# Where papers and their tests are, in a checkout of descentlab and in any other project.
CHECKOUT = (Path("src/descentlab/papers"), Path("tests/papers"))
PROJECT = (Path(OWN_PAPERS), Path("tests"))


def write(name: str, project: Path) -> list[Path]:
    """Writes a paper and its test into a project's folder, and returns their paths.

    A name that cannot be taken, or a file that exists, is refused before anything is written.
    """
    check(name)
    of_papers, of_tests = CHECKOUT if (project / CHECKOUT[0] / "__init__.py").exists() else PROJECT
    texts = {
        project / of_papers / f"{name}.py": _template("your_paper.py", name),
        project / of_tests / f"test_{name}.py": _template("twins.py", name),
    }
    folder = project / of_papers / name
    for path in (*texts, folder):
        if path.exists():
            raise SettingError(f"{path} exists and stays as it is: choose another name.")
    done: list[Path] = []
    try:
        for path, text in texts.items():
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_entry(path, text.encode())
            done.append(path)
    except BaseException:
        # Half a scaffold would be refused when the same command is given again.
        for path in done:
            path.unlink()
        raise
    return done


def check(name: str) -> None:
    """Refuses what cannot be the name of a new paper."""
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name) or name.startswith("_"):
        raise SettingError(
            "NAME takes letters, digits and underscores, beginning with a letter, and no keyword of Python; "
            f"got NAME={name}."
        )
    # Some disks do not tell capitals from small letters.
    taken = {there.casefold() for there in (*names(), *RESERVED)}
    if name.casefold() in taken:
        raise SettingError(
            f"NAME takes a name that no paper has, got NAME={name}; taken: {', '.join(sorted(taken))}."
        )


def _template(file: str, name: str) -> str:
    text = (resources.files("descentlab.scaffold") / file).read_text(encoding="utf-8")
    return text.replace("descentlab.scaffold.your_paper", f"descentlab.papers.{name}").replace(
        "your_paper", name
    )
