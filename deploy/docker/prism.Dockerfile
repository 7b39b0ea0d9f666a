# The image of code location, daemon, web server, worker and commands: prism-assets with the compiled kernel.
#
#   docker build -f deploy/docker/prism.Dockerfile -t prism-assets .
#
# Tables come from a mounted folder, or from an image of your own: FROM prism-assets, COPY tables /opt/prism/tables.
ARG PYTHON=3.12

FROM python:${PYTHON}-slim-trixie AS wheels
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends cargo gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /sources
COPY . .
RUN pip wheel --no-cache-dir --no-deps -w /wheels . ./prism_kernel

FROM python:${PYTHON}-slim-trixie
# Extras of prism-assets, and further packages, such as dagster-k8s==0.29.27 for Dagster's chart.
ARG EXTRAS=kafka,otel
ARG PACKAGES=
ENV PYTHONUNBUFFERED=1 \
    VIRTUAL_ENV=/opt/prism/venv \
    PATH=/opt/prism/venv/bin:$PATH
COPY constraints.txt /opt/prism/
# constraints.txt has the versions. It names no prism-assets and no prism-kernel: these are the wheels made above.
# hadolint ignore=DL3013,DL3042,SC2086
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    python -m venv "$VIRTUAL_ENV" \
    && pip install --no-cache-dir -c /opt/prism/constraints.txt \
        "prism-assets[${EXTRAS}] @ file://$(echo /wheels/prism_assets-*.whl)" /wheels/prism_kernel-*.whl ${PACKAGES}
# A process without the compiled kernel takes ten times the cores: it ends here, and at each start, with a sentence.
ENV PRISM_KERNEL=required
RUN python -c "from prism_assets.kernels.requirement import check_kernel; check_kernel()" \
    && useradd --system --uid 10001 --home-dir /opt/prism prism \
    && mkdir -p /opt/prism/home /opt/prism/state \
    && chown prism /opt/prism/home /opt/prism/state
ENV DAGSTER_HOME=/opt/prism/home
WORKDIR /opt/prism
USER 10001
CMD ["prism", "--help"]
