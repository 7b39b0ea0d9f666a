# The image of Spark: the Connect server, and its executors on Kubernetes, with prism-assets and the compiled kernel.
#
#   docker build -f deploy/docker/spark.Dockerfile -t prism-spark --build-arg PRISM=prism-assets .
#
# Python and packages are those of the image prism-assets: Spark refuses functions of another Python.
ARG PRISM=prism-assets

# hadolint ignore=DL3006
FROM ${PRISM}
USER 0
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-21-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && python -c "import os, pyspark; os.symlink(os.path.dirname(pyspark.__file__), '/opt/spark')" \
    && mkdir -p /opt/prism/work \
    && chown 10001 /opt/prism/work
COPY --chmod=755 deploy/docker/spark-entrypoint.sh /opt/spark-entrypoint.sh
# One heap for all threads: merges take a third less memory.
ENV SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/opt/prism/venv/bin/python \
    MALLOC_ARENA_MAX=1 \
    SPARK_LOCAL_DIRS=/opt/prism/work
WORKDIR /opt/prism/work
USER 10001
ENTRYPOINT ["tini", "--", "/opt/spark-entrypoint.sh"]
CMD ["connect"]
