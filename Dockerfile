# rxsteer in a container: one static binary and nothing else.
#   docker build --build-arg VERSION=$(git describe --always) --build-arg COMMIT=$(git rev-parse HEAD) -t rxsteer .
# Run it with the host's namespaces: --privileged --pid=host --network=host.
FROM docker.io/library/golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
ARG COMMIT=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${COMMIT}" -o /rxsteer ./cmd/rxsteer

FROM scratch
COPY --from=build /rxsteer /rxsteer
ENTRYPOINT ["/rxsteer"]
