# rxsteer in a container: one static binary and nothing else.
# Run it with the host's namespaces: --privileged --pid=host --network=host.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /rxsteer ./cmd/rxsteer

FROM scratch
COPY --from=build /rxsteer /rxsteer
ENTRYPOINT ["/rxsteer"]
