"""Fetch JVM artifacts by their Maven coordinates, with the Ivy that pyspark contains.

Perago installs no other resolver of Maven coordinates, and Spark itself uses this jar. Ivy works in
a directory inside the artifact that is being made; it does not use a local Maven repository of the
user, which may hold a POM without its JAR.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from perago.errors import SetupError
from perago.progress import shown
from perago.servers import truststore
from perago.servers.toolchain import java, tool
from perago.servers.toolchain.checksums import verify_files

_SECONDS = 1800.0


@dataclass(frozen=True)
class Coordinates:
    """One dependency. A classifier selects one file; ``transitive`` adds its dependencies."""

    organisation: str
    name: str
    revision: str
    classifier: str | None = None
    transitive: bool = False

    def as_xml(self) -> str:
        """Write the dependency as an element of an Ivy file."""
        # A POM's own jar is in the configuration `master`, its dependencies in the other two.
        conf = "default->master,compile,runtime" if self.transitive else "default->master"
        attributes = (
            f"org={quoteattr(self.organisation)} name={quoteattr(self.name)} "
            f"rev={quoteattr(self.revision)} transitive={quoteattr(str(self.transitive).lower())}"
        )
        if self.classifier is None:
            return f"<dependency {attributes} conf={quoteattr(conf)}/>"
        return (
            f'<dependency {attributes}><artifact name={quoteattr(self.name)} type="jar" ext="jar" '
            f"m:classifier={quoteattr(self.classifier)}/></dependency>"
        )


@dataclass(frozen=True)
class FetchRequest:
    """What to fetch, its size, and the alternative when it cannot be fetched."""

    # Its name in checksums.toml.
    artifact: str
    title: str
    dependencies: tuple[Coordinates, ...]
    excluded_organisations: tuple[str, ...]
    expected_bytes: int
    alternative: str


def pyspark_home() -> Path:
    """Find the folder of the installed pyspark without importing it."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("pyspark is not installed", hint="Install Perago with its dependencies.")
    return Path(spec.submodule_search_locations[0])


def retrieve(request: FetchRequest, target: Path) -> None:
    """Fetch the files of ``request`` into ``target`` and compare them with their hashes."""
    work = target / ".ivy"
    work.mkdir()
    settings, module = work / "settings.xml", work / "ivy.xml"
    settings.write_text(_settings(work / "cache"))
    module.write_text(_module(request))
    jar = next((pyspark_home() / "jars").glob("ivy-*.jar"))
    found = java.find(java.FETCH)
    command = [str(found.executable), *_trust(found, work), "-jar", str(jar)]
    command += ["-settings", str(settings), "-ivy", str(module), "-confs", "default"]
    command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    with shown(request.title, request.expected_bytes, "bytes") as advance:
        tool.run(
            command,
            what=request.title,
            cwd=work,
            log=work / "ivy.log",
            seconds=_SECONDS,
            on_tick=lambda: advance(_bytes_below(work)),
            alternative=request.alternative,
        )
    # Ivy copies what it fetched; its cache, up to half a gigabyte, is not needed again.
    shutil.rmtree(work)
    verify_files(request.artifact, target, request.alternative)


def _trust(found: java.Java, work: Path) -> list[str]:
    """Make the wheel's Java trust what Python trusts, as pip did when it was installed."""
    store = truststore.write_machine(work / "truststore.jks") if found.is_wheel else None
    return [] if store is None else truststore.java_options(store)


def _settings(cache: Path) -> str:
    mirror = os.environ.get("PERAGO_MAVEN_REPOSITORY")
    root = f" root={quoteattr(mirror)}" if mirror else ""
    return (
        '<ivysettings><settings defaultResolver="maven"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/>"
        f'<resolvers><ibiblio name="maven" m2compatible="true"{root}/></resolvers></ivysettings>\n'
    )


def _module(request: FetchRequest) -> str:
    dependencies = "".join(dependency.as_xml() for dependency in request.dependencies)
    excludes = "".join(f"<exclude org={quoteattr(o)}/>" for o in request.excluded_organisations)
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="perago" module="fetched"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}{excludes}</dependencies></ivy-module>\n"
    )


def _bytes_below(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # renamed by Ivy after the listing
            continue
    return total
