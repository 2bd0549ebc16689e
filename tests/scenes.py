"""What stands around a page while it is typed: the daemon it speaks to, and what its names stand for.

Decides: for each page that needs more than one daemon of this computer, which real part or double is in the
place of what no test can have: a domain, a cloud, a cluster, a bucket, a console, folders of a server. Never:
runs a line of a page. Follows: a daemon that a page starts is one of a state folder below the test's own, and
ends with the page, and so do its nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests import databases
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon, agents_below, free_port
from tests.jobs import engine, s3_double, till
from tests.providers import aws_cloud, container_engine
from tests.providers.beside import running_beside
from tests.providers.kubernetes_cluster import Cluster
from tests.providers.skypilot_server import SkypilotServer
from tests.providers.sshd import Sshd, make_key, serving
from tests.typist import Typist, blocks_of

ROOT = Path(__file__).parents[1]
DOMAIN = "https://sky.example.com:7590"
EVERYWHERE = {"--host 0.0.0.0": "--host 127.0.0.1"}
SOLD = {"SKY_ALLOW_HOST_JOBS": "true", "SKY_WEBHOOK_LOOPBACK": "true"}
STOP_S = 60.0


@dataclass
class Stage:
    """Where a page is typed: the daemon of all pages, and a folder that only this page has."""

    daemon: RunningDaemon
    folder: Path

    def shared(self) -> Typist:
        """Somebody who speaks to the daemon of all pages."""
        return Typist(Sky(self.daemon.home, self.folder, **self.daemon.environment), self.daemon.url)

    @contextmanager
    def alone(self, started: bool = False, /, **settings: str) -> Iterator[Typist]:
        """Somebody with a daemon of their own, or who has none yet; what they start is ended, nodes too.

        Extras are here already: where one is not, its `pip install` fails, and no index is asked."""
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="sky-page-") as short:
            sky = Sky(Path(short, "home"), self.folder, SKY_PORT=str(port), PIP_NO_INDEX="1", **settings)
            typist = Typist(sky, f"http://127.0.0.1:{port}", stands={"--port 7590": f"--port {port}"})
            try:
                if started:
                    sky("server", "start").check()
                yield typist
            finally:
                for place in (Path(short), self.folder):
                    for file in place.rglob("daemon.json"):
                        home = str(file.parent)
                        sky("api", "logout", SKY_HOME=home)  # whoever is logged in stops none of their own
                        ended = sky("server", "stop", SKY_HOME=home, timeout_s=STOP_S)
                        assert not file.exists(), f"a daemon of the page goes on: {ended}"
                    for pid in agents_below(place):
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

    def certificate(self) -> tuple[Path, Path]:
        """A certificate of this computer that only whoever has its file believes, and its key."""
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names)
        subprocess.run((*made, "-keyout", key, "-out", cert), check=True, capture_output=True, timeout=STOP_S)
        return cert, key


Scene = Callable[[Stage], Iterator[Typist]]
SCENES: dict[str, Scene] = {}


def scene(*pages: str) -> Callable[[Scene], Scene]:
    """The scene of these pages."""

    def known(made: Scene) -> Scene:
        SCENES.update(dict.fromkeys(pages, made))
        return made

    return known


def block_of(page: str, kind: str) -> str:
    """The first block of a kind in a page."""
    return next(block.body for block in blocks_of(ROOT / page) if block.kind == kind)


def hers(url: str, user: str) -> dict[str, str]:
    """Two lines in which somebody logs in, on a computer of their own, with a token that they were given."""
    return {
        "sky api login": "( export SKY_HOME=$HOME/hers; unset SKY_PORT; sky api login",
        "--token -\n": f'--token - <<<"$(SKY_HOME=$DAEMON_HOME sky token create hers --user {user})"\n',
        "sky user me\n": "sky user me )\n",
        DOMAIN: url,
    }


@scene("docs/howto/retention.md")
def begun(stage: Stage) -> Iterator[Typist]:
    with stage.alone(True) as typist:
        typist.stands["SKY_ENDED_DAYS"] = "sky server stop\nSKY_ENDED_DAYS"
        yield typist


@scene("README.md", "docs/howto/watch.md")
def begins(stage: Stage) -> Iterator[Typist]:
    token = stage.folder / "metrics-token"
    token.write_text("of-whoever-scrapes-it")
    with stage.alone() as typist:
        typist.stands |= {
            DOMAIN: typist.url,
            "/etc/skyfleet/metrics-token": str(token),
            "OTEL_EXPORTER": "sky server stop\nOTEL_EXPORTER",
        }
        yield typist


@scene("docs/howto/access.md")
def logs_in(stage: Stage) -> Iterator[Typist]:
    typist = stage.shared()
    typist.stands |= hers(typist.url, "grace")
    typist.said["DAEMON_HOME"] = str(stage.daemon.home)
    yield typist


@scene("docs/users.md")
def a_server_with_users(stage: Stage) -> Iterator[Typist]:
    cert, _ = stage.certificate()
    (stage.folder / "task.yaml").write_text("run: echo hello\n")
    with stage.alone() as typist:
        url = typist.url.replace("http://127.0.0.1", "https://localhost")
        login = hers(url, "ada")
        login["sky api login"] = (
            f"{login['sky api login'].removesuffix('sky api login')} export SKY_CA_FILE={cert}; sky api login"
        )
        login["sky user me\n"] = "sky user me\n"
        login["sky launch -c dev task.yaml"] = "sky launch -c dev task.yaml )"
        typist.stands |= {**EVERYWHERE, **login}
        typist.said["DAEMON_HOME"] = str(typist.sky.home)
        yield typist


@scene("docs/howto/tls.md")
def behind_tls(stage: Stage) -> Iterator[Typist]:
    cert, key = stage.certificate()
    with stage.alone(SKY_CA_FILE=str(cert), CURL_CA_BUNDLE=str(cert)) as typist:
        url = typist.url.replace("http://127.0.0.1", "https://localhost")
        served = f"sky server start --tls-cert {cert} --tls-key {key}"
        typist.stands |= {
            **EVERYWHERE,
            "/etc/skyfleet/cert.pem": str(cert),
            "/etc/skyfleet/key.pem": str(key),
            "SKY_PROXIES=10.0.0.5": "sky server stop\nSKY_PROXIES=127.0.0.1",
            "--host 10.0.0.4": "--host 127.0.0.1",
            "sky doctor": f"sky server stop\n{served}\nsky user create ada\nsky doctor",
            "--token -\n": '--token - <<<"$(sky token create hers --user ada)"\n',
            DOMAIN: url,
        }
        yield typist


@scene("docs/howto/backup.md")
def backed_up(stage: Stage) -> Iterator[Typist]:
    with stage.alone(True) as typist:
        typist.stands["/srv/"] = f"{stage.folder}/"
        yield typist


@scene("docs/operating.md", "docs/howto/postgresql.md")
def on_postgresql_and_a_bucket(stage: Stage) -> Iterator[Typist]:
    server, name = databases.server(), f"page_{free_port()}"
    server.do(f"CREATE DATABASE {name}")
    (stage.folder / "backups").mkdir()
    with (
        s3_double.serving(s3_double.FakeS3()) as place,
        stage.alone(True, **bucket_settings(place)) as typist,
    ):
        typist.stands |= {
            "postgresql://sky@db.example/sky": server.url(name).replace("+psycopg", ""),
            "/srv/": f"{stage.folder}/",
            "/nfs/": f"{stage.folder}/",
            **BUCKET,
        }
        yield typist


BUCKET = {"s3://bucket/": f"s3://{s3_double.BUCKET}/", "REGION=eu-central-1": f"REGION={s3_double.REGION}"}


def bucket_settings(place: str) -> dict[str, str]:
    [(key, (secret, _))] = s3_double.FakeS3().keys.items()
    return {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "SKY_ARTIFACTS_ENDPOINT": place}


@scene("docs/jobs.md")
def sold_here(stage: Stage) -> Iterator[Typist]:
    with s3_double.serving(s3_double.FakeS3()) as place:
        settings = bucket_settings(place)
        key, secret = settings["AWS_ACCESS_KEY_ID"], settings["AWS_SECRET_ACCESS_KEY"]
        with stage.alone(**SOLD, SKY_ARTIFACTS_ENDPOINT=place) as typist:
            typist.stands |= {
                "AWS_ACCESS_KEY_ID=...": f"AWS_ACCESS_KEY_ID={key}",
                "AWS_SECRET_ACCESS_KEY=...": f"AWS_SECRET_ACCESS_KEY={secret}",
                "--image debian": "--image local",
                "https://example.com/hook": "http://127.0.0.1:9/hook",
                **BUCKET,
            }
            yield typist


@scene("docs/howto/webhooks.md")
def as_a_customer(stage: Stage) -> Iterator[Typist]:
    typist = stage.shared()
    typist.sky("admin", "account", "create", "hooked").check()
    typist.said["SKY_API_KEY"] = typist.sky("admin", "key", "create", "hooked").check().out.strip()
    typist.said["SKY_URL"] = typist.url
    typist.stands["https://example.com/hook"] = "http://127.0.0.1:9/hook"
    yield typist


@scene("docs/console.md")
def at_a_console(stage: Stage) -> Iterator[Typist]:
    console = till.Till(stage.folder, free_port())
    console.start()
    try:
        with stage.alone() as typist:
            typist.stands |= {
                "https://console.example.com": console.url,
                "SKY_CONSOLE_TOKEN=…": f"SKY_CONSOLE_TOKEN={till.TOKEN}",
            }
            yield typist
    finally:
        console.kill()


@scene("docs/catalogue.md", "docs/howto/prices.md")
def with_a_list(stage: Stage) -> Iterator[Typist]:
    for page in ("docs/catalogue.md", "docs/howto/prices.md"):
        whole = block_of(page, "yaml").replace("@sha256:…", f"@sha256:{'0' * 64}")
        (stage.folder / f"{Path(page).stem}.yaml").write_text(whole)
    with stage.alone() as typist:
        yield typist


@scene("docs/howto/cost.md")
def a_night(stage: Stage) -> Iterator[Typist]:
    (stage.folder / "train.yaml").write_text("run: echo trained\n")
    yield stage.shared()


@scene("docs/images.md")
def with_files(stage: Stage) -> Iterator[Typist]:
    for name in ("lib/mypackage", "settings", "data/raw"):
        (stage.folder / name).mkdir(parents=True)
        (stage.folder / name / "file").write_text(name)
    typist = stage.shared()
    # No index is asked, and what is installed already installs nothing.
    typist.stands |= {
        'pip=["numpy", "scikit-learn>=1.5"]': "pip=[]",
        "--apt graphviz": "--apt bash",
        "image = sky": "import sky\nimage = sky",
    }
    yield typist


@scene("docs/plugins.md")
def with_plugins(stage: Stage) -> Iterator[Typist]:
    typist = stage.shared()
    # What this computer has is not installed on it again; and what is worked on is the reader's.
    typist.stands |= {
        "Joblib()": "Joblib(install=False)",
        "Sklearn()": "Sklearn(install=False)",
        "sky.joblib_backend(compute)": "sky.Compute(quiet=True) as compute, sky.joblib_backend(compute)",
        "import Parallel, delayed\n": "import Parallel, delayed\nfrom math import sqrt as simulate\n",
        "range(1000)": "range(20)",
        "with sky.Compute(nodes=4, plugins=[sky.plugins.Sklearn": SEARCHED,
    }
    yield typist


SEARCHED = """
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
inputs, targets = load_iris(return_X_y=True)
with sky.Compute(nodes=2, plugins=[sky.plugins.Sklearn"""


@scene("docs/providers/aws.md")
def at_amazon(stage: Stage) -> Iterator[Typist]:
    with aws_cloud.running() as cloud, stage.alone() as typist:
        typist.stands |= {
            "--kind aws --config": f"--kind aws --config endpoint_url={cloud.url} --config",
            "AKIA...": aws_cloud.KEYS["access_key_id"],
            "secret_access_key=...": f"secret_access_key={aws_cloud.KEYS['secret_access_key']}",
        }
        yield typist


FORWARDED = "ssh -N -L /run/user/1000/far.sock:/run/podman/podman.sock operator@far.example"


@scene("docs/providers/container.md")
def with_containers(stage: Stage) -> Iterator[Typist]:
    engine.missing_is_told()
    cert, _ = stage.certificate()
    (stage.folder / "ca.pem").write_text(cert.read_text())
    key = make_key(stage.folder / "key")
    with (
        tempfile.TemporaryDirectory(prefix="sky-run-") as run,
        serving(Sshd(stage.folder / "host", key)) as host,
        stage.alone() as typist,
    ):
        podman = engine.configured(stage.folder, Path(run), f"127.0.0.1:{free_port()}")
        socket = Path(run, "podman.sock")
        with container_engine.served(stage.folder, podman, socket):
            typist.stands[FORWARDED] = forwarded(host, Path(run, "far.sock"), socket)
            typist.stands["--kind container"] = f"--kind container --config engine=unix://{socket}"
            typist.stands[f"--config engine=unix://{socket} --config engine=tcp"] = "--config engine=tcp"
            yield typist


def forwarded(host: Sshd, here: Path, there: Path) -> str:
    """The line that forwards a socket until it is interrupted, as one that ends with its host, and a use."""
    known = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i {host.key} -p {host.port}"
    forward = f"ssh -f -N {known} -o ExitOnForwardFailure=yes -L {here}:{there} root@{host.address}"
    return f"{forward} >/dev/null 2>&1\ncurl --silent --unix-socket {here} http://engine/_ping"


@scene("docs/proof.md")
def with_histories(stage: Stage) -> Iterator[Typist]:
    typist = stage.shared()
    typist.stands["scripts/soak"] = str(ROOT / "scripts/soak")
    yield typist


@scene("docs/from/skyward.md")
def with_a_cloud(stage: Stage) -> Iterator[Typist]:
    typist = stage.shared()
    typist.sky("provider", "add", "cloud", "--kind", "local").check()
    typist.stands["import sky\n"] = "import sky\n\n@sky.function\ndef train(epochs):\n    return epochs\n"
    typist.stands['"cloud", accelerator="A100"'] = '"cloud"'
    yield typist
    typist.sky("provider", "remove", "cloud", "--yes").check()


@scene("docs/providers/kubernetes.md")
def in_a_cluster(stage: Stage) -> Iterator[Typist]:
    (stage.folder / "train.yaml").write_text("run: echo trained\n")
    cluster = Cluster()
    cluster.add_node(
        cpus=64, memory="512Gi", gpus=8, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
    )
    with running_beside(cluster), stage.alone() as typist:
        (stage.folder / "kubeconfig.yaml").write_text(cluster.kubeconfig())
        typist.stands[" train.yaml"] = " --dryrun train.yaml"
        yield typist


@scene("docs/providers/skypilot.md")
def at_a_skypilot_server(stage: Stage) -> Iterator[Typist]:
    (stage.folder / "train.yaml").write_text("run: echo trained\n")
    server = SkypilotServer()
    with running_beside(server), stage.alone() as typist:
        typist.stands |= {"https://skypilot.example.com": server.url, " train.yaml": " --dryrun train.yaml"}
        yield typist


@scene("docs/providers/ssh.md", "docs/howto/machines.md")
def over_ssh(stage: Stage) -> Iterator[Typist]:
    key = make_key(stage.folder / "key")
    with serving(Sshd(stage.folder / "host", key)) as host, stage.alone(True) as typist:
        text = f"user: root\nidentity_file: {key}\nhosts:\n  - root@{host.address}:{host.port}\n"
        (stage.folder / "hosts.yaml").write_text(text)
        typist.stands |= {
            "user: ubuntu\n": f"user: root\nidentity_file: {key}\n",
            "[10.0.0.11, 10.0.0.12]": f'["{host.address}:{host.port}"]',
        }
        yield typist


@scene("docs/how-to-add/provider.md")
def with_a_kind_of_its_own(stage: Stage) -> Iterator[Typist]:
    provider = next(
        block.body for block in blocks_of(ROOT / "docs/how-to-add/provider.md") if block.kind == "python"
    )
    (stage.folder / "skyfleet_shells.py").write_text(provider)
    info = stage.folder / "skyfleet_shells-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skyfleet-shells\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[skyfleet.providers]\nshells = skyfleet_shells:ShellsProvider\n")
    with stage.alone(PYTHONPATH=str(stage.folder)) as typist:
        typist.stands["/tmp/shells"] = str(stage.folder / "shells")
        yield typist


@scene("docs/install.md")
def in_a_bash(stage: Stage) -> Iterator[Typist]:
    typist = stage.shared()
    typist.said["SHELL"] = "/bin/bash"
    yield typist


def anyone(stage: Stage) -> Iterator[Typist]:
    """All other pages."""
    yield stage.shared()


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """The daemon of all pages, and of no other test: what a reader adds stays, providers and computes too."""
    running = RunningDaemon(tmp_path_factory.mktemp("readers"), free_port(), dict(SOLD), executed=True)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def stage(readers: RunningDaemon, tmp_path: Path) -> Stage:
    return Stage(readers, tmp_path)
