# The relay and its tools, in one small image: docker build -t pillarbox .
FROM rust:1-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends cmake && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p pillarbox-cli --features kafka

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates zlib1g && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --uid 10001 pillarbox
COPY --from=build /source/target/release/pillarbox /usr/bin/pillarbox
USER pillarbox
EXPOSE 9464
# Inside of a container the port must be reachable from outside of it: relay.listen = "0.0.0.0:9464".
ENTRYPOINT ["/usr/bin/pillarbox"]
CMD ["relay", "--config", "/etc/pillarbox/pillarbox.toml"]
