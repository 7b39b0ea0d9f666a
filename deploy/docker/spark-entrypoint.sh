#!/bin/sh
# Starts a process of Spark: `connect` is the Connect server; `executor` is what Spark on Kubernetes asks of its images,
# with the variables that Spark sets. Anything else is run as it is.
set -eu

# Options of spark-submit from SPARK_OPTIONS, a line `name=value` each.
options() {
    printf '%s\n' "${SPARK_OPTIONS-}" | while IFS= read -r line; do
        case "$line" in "" | "#"*) continue ;; esac
        printf -- '--conf\n%s\n' "$line"
    done
}

case "${1-}" in
    connect)
        shift
        # The plan cache keeps the rows of large jobs, and no job of prism repeats a plan.
        set -- --master "${SPARK_MASTER:-local[*]}" --driver-memory "${SPARK_DRIVER_MEMORY:-2g}" \
            --conf "spark.connect.grpc.binding.address=${SPARK_BIND_ADDRESS:-0.0.0.0}" \
            --conf "spark.connect.grpc.binding.port=${SPARK_CONNECT_PORT:-15002}" \
            --conf spark.connect.session.planCache.enabled=false \
            --conf spark.sql.session.timeZone=UTC \
            --conf spark.ui.enabled=false \
            --conf spark.executorEnv.MALLOC_ARENA_MAX=1 \
            --conf "spark.executorEnv.PRISM_KERNEL=${PRISM_KERNEL:-}" "$@"
        while IFS= read -r word; do
            [ -z "$word" ] || set -- "$@" "$word"
        done <<EOF
$(options)
EOF
        exec "$SPARK_HOME/bin/spark-submit" "$@" \
            --class org.apache.spark.sql.connect.service.SparkConnectServer spark-internal
        ;;
    executor)
        shift
        # Spark numbers its options: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …
        set --
        number=0
        while :; do
            eval "option=\${SPARK_JAVA_OPT_$number-}"
            [ -n "$option" ] || break
            set -- "$@" "$option"
            number=$((number + 1))
        done
        exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
            -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/conf:$SPARK_HOME/jars/*" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    *) exec "$@" ;;
esac
