# A small image with the tidegate binary.
#
#   docker build -t tidegate .
#   docker run --rm -i -v "$PWD:/data" tidegate run hourly.sql

FROM rust:1.94-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --profile dist --locked --bin tidegate

FROM debian:bookworm-slim
RUN useradd --create-home tidegate
COPY --from=build /src/target/dist/tidegate /usr/local/bin/tidegate
USER tidegate
# Paths of scripts and tables are relative to this folder.
WORKDIR /data
ENTRYPOINT ["tidegate"]
