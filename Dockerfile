# The daemon and its commands, with every extra. Built from the root of the repository:
#   docker build --tag skyfleet .
# docs/install.md says how it is run.
ARG PYTHON=3.13-slim-trixie

FROM docker.io/library/python:${PYTHON} AS build
WORKDIR /build
# A base that trusts more authorities than most (a company's own) is believed.
ENV UV_SYSTEM_CERTS=1
# What is locked changes seldom, and comes first: then it is fetched once.
COPY requirements/all.txt requirements/dev.txt requirements/
RUN awk '/^[^ ]/ { on = /^uv==/ } on' requirements/all.txt > uv.txt \
    && python -m pip install --no-cache-dir --no-deps --require-hashes -r uv.txt
RUN uv venv --python "$(command -v python)" /opt/skyfleet \
    && uv pip sync --no-cache --compile-bytecode --require-hashes --python /opt/skyfleet/bin/python \
        requirements/all.txt
COPY pyproject.toml README.md ./
COPY packaging/man packaging/man
COPY src src
RUN uv build --no-cache --wheel --out-dir dist --build-constraint requirements/dev.txt --require-hashes \
    && uv pip install --no-cache --compile-bytecode --no-deps --python /opt/skyfleet/bin/python dist/*.whl

FROM docker.io/library/python:${PYTHON}
# The first process has to take in what nodes on this computer leave behind.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends "tini=0.19.*" \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && groupadd --gid 10001 skyfleet \
    && useradd --uid 10001 --gid 10001 --no-log-init --home-dir /var/lib/skyfleet --no-create-home skyfleet \
    && install --directory --owner=skyfleet --group=skyfleet --mode=700 /var/lib/skyfleet
COPY --from=build /opt/skyfleet /opt/skyfleet
ENV PATH=/opt/skyfleet/bin:$PATH \
    HOME=/var/lib/skyfleet \
    SKY_HOME=/var/lib/skyfleet/home
WORKDIR /var/lib/skyfleet
VOLUME /var/lib/skyfleet
USER 10001:10001
EXPOSE 7590
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["sky", "server", "status"]
ENTRYPOINT ["tini", "--", "sky"]
CMD ["server", "start", "--foreground"]
