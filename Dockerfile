# Images of a Pump and of a Drainer, with binlogctl and reparo in both; see docs/packages.md.
#
#   docker build --target pump --build-arg VERSION=1.0.0 --tag tidb-binlog-pump:1.0.0 .
#   docker build --target drainer --build-arg VERSION=1.0.0 --tag tidb-binlog-drainer:1.0.0 .

FROM python:3.13.9-slim-trixie AS wheels
WORKDIR /source
COPY . .
RUN python -m venv /build && \
    /build/bin/python -m pip wheel --no-cache-dir --quiet --wheel-dir /wheels '.[server,kafka]'
RUN python -m venv --without-pip /opt/tidb-binlog && \
    /build/bin/python -m pip --python /opt/tidb-binlog/bin/python install \
        --no-cache-dir --no-index --find-links /wheels 'tidb-binlog[server,kafka]'

FROM python:3.13.9-slim-trixie AS node
ARG VERSION=unknown
LABEL org.opencontainers.image.title="TiDB Binlog in Python" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
# The number is fixed, so that the owner of a volume is the same in every version.
RUN groupadd --gid 10001 tidb-binlog && \
    useradd --uid 10001 --gid 10001 --home-dir /var/lib/tidb-binlog --no-create-home \
        --shell /usr/sbin/nologin tidb-binlog && \
    install -d -o tidb-binlog -g tidb-binlog -m 0700 /var/lib/tidb-binlog
# Python's image has no bytecode of the standard library: each start of a container would compile it.
RUN python -m compileall -q /usr/local/lib/python3*
COPY --from=wheels /opt/tidb-binlog /opt/tidb-binlog
COPY deploy/pump.toml deploy/drainer.toml /etc/tidb-binlog/
# Python's output goes out at once, and nothing is written beside the programs.
ENV PATH=/opt/tidb-binlog/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/tidb-binlog
VOLUME /var/lib/tidb-binlog

# Variables win over the file: what is the same in every container is set here. advertise-addr is not.
FROM node AS drainer
ENV BINLOG_SERVER_ADDR=0.0.0.0:8249 BINLOG_SERVER_DATA_DIR=/var/lib/tidb-binlog
EXPOSE 8249
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s \
    CMD ["python", "-m", "binlogctl.ready", "drainer", "--config", "/etc/tidb-binlog/drainer.toml"]
CMD ["drainer", "--config", "/etc/tidb-binlog/drainer.toml"]

FROM node AS pump
ENV PUMP_ADDR=0.0.0.0:8250 PUMP_DATA_DIR=/var/lib/tidb-binlog
EXPOSE 8250
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s \
    CMD ["python", "-m", "binlogctl.ready", "pump", "--config", "/etc/tidb-binlog/pump.toml"]
CMD ["pump", "--config", "/etc/tidb-binlog/pump.toml"]
