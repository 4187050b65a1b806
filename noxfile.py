"""Tasks for development: `nox -l` lists them, `nox -s NAME` runs one, `nox` alone runs the quick checks.

Each session has an environment of its own, which later runs reuse. To run in the active environment instead:
`nox --no-venv --no-install -s lint`.
"""

import nox

nox.needs_version = ">=2025.2"
nox.options.sessions = ["lint", "types", "test"]
nox.options.reuse_venv = "yes"

PYTEST = ("python", "-m", "pytest", "-n", "2", "--dist", "loadfile")


def install(session: nox.Session) -> None:
    """Installs tfplace in editable mode with its development tools, in the versions that were tried together."""
    session.install("-c", "constraints.txt", "-e", ".[dev]")


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Check formatting, lint rules and import contracts."""
    install(session)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")


@nox.session(python="3.11")
def types(session: nox.Session) -> None:
    """Check types with mypy; arguments after `--` go to mypy."""
    install(session)
    session.run("mypy", *session.posargs)


@nox.session(python="3.11")
def test(session: nox.Session) -> None:
    """Run the quick tests; arguments after `--` go to pytest."""
    install(session)
    session.run(*PYTEST, *session.posargs)


@nox.session(python="3.11", name="test-all")
def test_all(session: nox.Session) -> None:
    """Run all tests that need no GPU, the slow ones included; arguments after `--` go to pytest."""
    install(session)
    session.run(*PYTEST, "-m", "not gpu", *session.posargs)


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """Check the pages against the code: flags, placers, presets, links and examples."""
    install(session)
    session.run(
        "python", "-m", "pytest", "tests/test_docs.py", "tests/test_site.py", "tests/test_examples.py", *session.posargs
    )


@nox.session(python="3.11")
def site(session: nox.Session) -> None:
    """Build the documentation site; warnings fail. `nox -s site -- serve` shows it while you write."""
    install(session)
    notice = {"NO_MKDOCS_2_WARNING": "1"}  # the theme prints one about its successor
    session.run("mkdocs", *(session.posargs or ("build",)), env=notice)


@nox.session(python="3.11")
def research(session: nox.Session) -> None:
    """Run the research tests, or a study with its flags: `nox -s research -- STUDY [FLAG...]`."""
    install(session)
    if not session.posargs:
        session.run(*PYTEST, "research/tests")
        return
    study, *flags = session.posargs
    session.run("python", "-m", f"research.{study}", *flags)
