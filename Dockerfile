# Builds the image of remuda: the server, its default configuration, a user without rights, and no compiler.
#
#     docker build --tag remuda .
#     docker run --rm --read-only --tmpfs /tmp --publish 127.0.0.1:50051:50051 remuda
#
# Workers are not in it. Build your own image from this one; USER back to remuda at the end:
#
#     FROM remuda:0.1.0
#     USER root
#     RUN apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*
#     COPY worker.py /srv/worker/
#     COPY remuda.toml /etc/remuda/
#     USER 10001:10001
#
# The base images are pinned by version. For a release pin them by digest too (debian:12.12-slim@sha256:...), which also
# pins what is in them; `docker buildx imagetools inspect debian:12.12-slim` tells it. Both must be of the same Debian
# release, because the program needs a glibc at least as new as the one it was built with.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src

# The dependencies, in a layer that lasts until the manifests or the API change. Cargo wants every target that the
# manifest names to exist, so each is an empty program for now. The API is here because build.rs compiles it.
COPY Cargo.toml Cargo.lock build.rs ./
COPY proto proto
RUN set -eu; \
    benches=$(sed -n '/^\[\[bench\]\]/,/^$/s/^name = "\(.*\)"$/benches\/\1.rs/p' Cargo.toml); \
    for file in $(sed -n 's/^path = "\(.*\.rs\)"$/\1/p' Cargo.toml) $benches; do \
        mkdir -p "$(dirname "$file")"; \
        echo 'fn main() {}' > "$file"; \
    done; \
    touch src/lib.rs; \
    cargo build --release --locked --bin remuda

# The program. A file's time may be older than the layer above, and cargo goes by the time.
COPY src src
RUN touch src/lib.rs src/main.rs && cargo build --release --locked --bin remuda

FROM debian:12.12-slim
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="remuda" \
      org.opencontainers.image.description="Warm worker processes behind one gRPC endpoint" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# A fixed number, so that file owners and Kubernetes' runAsUser can name it. Its home is the one place it can write to.
RUN groupadd --gid 10001 remuda \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin remuda

COPY LICENSE LICENSE-MIT LICENSE-APACHE /usr/share/doc/remuda/
COPY deploy/container.toml /etc/remuda/remuda.toml
COPY --from=build /src/target/release/remuda /usr/local/bin/remuda

# The root file system may be read-only: the server writes nowhere but below /tmp (or pool.socket_dir), which wants a
# tmpfs then. Give a stop more time than drain_pause, drain_timeout, cancel_grace and term_grace together: docker stop --time 60.
ENV REMUDA_CONFIG=/etc/remuda/remuda.toml
USER 10001:10001
WORKDIR /tmp
EXPOSE 50051 9090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["remuda", "health", "--quiet"]

# It is fit to be process 1: it handles the signals and reaps what it inherits, so no init is needed before it.
ENTRYPOINT ["remuda"]
CMD ["serve"]
