# rxsteer. `make` alone prints the targets.
SHELL := /bin/bash
GO ?= go
BIN := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
# What a run needs (demo), what the tests need on top of it, and what the checks do.
RUN_PACKAGES := ethtool iproute2
TEST_PACKAGES := systemd prometheus runc rpm tmux chromium fonts-dejavu-core
CHECK_PACKAGES := clang llvm libbpf-dev clang-format
FUZZTIME ?= 5s

.DEFAULT_GOAL := help
.PHONY: help
help: ## print the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z%_-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: need-go ## bin/rxsteer (static; needs only Go)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/rxsteer ./cmd/rxsteer

.PHONY: package
# Everything in the packages is as old as the commit.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DIST ?= dist
ARCHS ?= amd64 arm64
package: build ## deb, rpm and bill of materials for amd64 and arm64 in dist/
	@mkdir -p $(DIST)/built/man $(DIST)/built/completion
	$(BIN)/rxsteer man -w $(DIST)/built/man
	for s in bash zsh fish; do $(BIN)/rxsteer completion $$s >$(DIST)/built/completion/$$s || exit 1; done
	for a in $(ARCHS); do \
	  CGO_ENABLED=0 GOARCH=$$a $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(DIST)/built/rxsteer-$$a ./cmd/rxsteer && \
	  $(GO) -C deploy run ./package -built $(abspath $(DIST))/built -w $(abspath $(DIST)) -arch $$a -version '$(VERSION)' -epoch $(SOURCE_DATE_EPOCH) || exit 1; \
	done

.PHONY: demo
demo: need-go deps-run build ## the main job on real traffic in namespaces, before and after (root, 90 s)
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/demo ./lab/demo
	$(SUDO) $(BIN)/demo --rxsteer $(BIN)/rxsteer

.PHONY: picture
picture: need-go deps-test build ## the README's picture again, of a demo: before, after and the agent's page (quiet machine)
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN)/demo ./lab/demo
	$(SUDO) $(BIN)/demo --rxsteer $(BIN)/rxsteer --picture docs/images/page.png

.PHONY: check
check: export RXSTEER_SOAK ?= 5m
check: need-go deps lint generate-check test-user test fuzz-short lab-ci ## everything CI runs (root; real BPF, real kernels in VMs)
	@echo "make check: all passed"

.PHONY: test
test: need-go deps-test ## all tests; as root the real kernel takes part, and an unexplained skip fails
	@# One package at a time: a rig that floods a CPU's backlog would take packets from another's.
	set -o pipefail; { $(GO) test -p 1 -timeout 30m -json ./... && $(GO) -C deploy test -p 1 -timeout 30m -json ./...; } | $(GO) run ./lab/testreport -skips .ci/skips

.PHONY: test-user
test-user: need-go ## the same tests as an ordinary user: what needs no privilege passes, the rest names what it needs
	set -o pipefail; $(GO) test -timeout 30m -json -exec '$(CURDIR)/.ci/as-user' ./... | $(GO) run ./lab/testreport -skips .ci/skips-user

.PHONY: soak
SOAK ?= 1h
soak: need-go deps-run ## wear the agent for SOAK (1h): flaps, fights, rude clients, kill −9 (root)
	@# On this kernel; make lab does it in a guest.
	RXSTEER_SOAK=$(SOAK) $(GO) test -count=1 -timeout 24h -run TestSoak -v ./cmd/rxsteer

.PHONY: lint
lint: need-go deps ## gofmt, go vet, staticcheck, clang-format
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'ed: $$out"; exit 1; }
	$(GO) vet ./... && $(GO) -C deploy vet ./...
	$(GO) run $(STATICCHECK) ./... && $(GO) -C deploy run $(STATICCHECK) ./...
	clang-format --dry-run --Werror $$(git ls-files '*.c' '*.h')
	$(GO) mod verify

.PHONY: generate
generate: need-go deps ## compile the BPF programs again (clang, libbpf headers)
	$(GO) generate ./...

.PHONY: generate-check
generate-check: need-go deps ## generated files in git are what `make generate` makes, byte for byte
	@d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && git ls-files -z | xargs -0 cp --parents -t "$$d" && \
	(cd "$$d" && $(GO) generate ./... ) && \
	git ls-files '*_bpfel.*' '*_bpfeb.*' | while read -r f; do cmp "$$f" "$$d/$$f" || exit 1; done && echo "generated files: identical"

.PHONY: fuzz-short fuzz
fuzz-short: FUZZTIME := 3s
fuzz-short: fuzz
fuzz: need-go ## every fuzzer for FUZZTIME (5s)
	@$(GO) list -f '{{.Dir}} {{.ImportPath}}' ./... | while read -r dir pkg; do \
	  for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$dir/*_test.go 2>/dev/null | awk '{print $$2}'); do \
	    echo "fuzz $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg >/tmp/fuzz.$$$$ 2>&1 || { cat /tmp/fuzz.$$$$; exit 1; }; rm -f /tmp/fuzz.$$$$; \
	  done; done

.PHONY: lab lab-ci lab-matrix lab-list lab-kill lab-persist lab-package lab-image rxlab
rxlab: need-go deps
	@$(GO) build -o $(BIN)/rxlab ./lab/vm
lab: rxlab ## every VM scenario, the kernel matrix, the map's truth, persist, kill -9, the image and the package, one table (long)
	$(SUDO) $(BIN)/rxlab all
	$(SUDO) $(BIN)/rxlab run -lasts $(SOAK) soak
	$(MAKE) soak
lab-ci: rxlab ## the part of the lab that CI runs: two kernels, igb and virtio
	$(SUDO) $(BIN)/rxlab ci
	$(SUDO) $(GO) test -tags lab -count=1 -timeout 30m ./lab/vm/qemu
lab-matrix: rxlab ## BPF objects, hooks and attribution on four kernels
	$(SUDO) $(BIN)/rxlab matrix
lab-list: rxlab ## the scenarios
	@$(BIN)/rxlab list
lab-kill: rxlab ## kill -9 at 200 random points of apply on a real driver
	$(SUDO) $(BIN)/rxlab kill
lab-persist: rxlab ## persisted settings after a reboot and after ethtool -L, in guests
	$(SUDO) $(BIN)/rxlab persist
lab-package: rxlab ## deb installed, killed, upgraded and removed in a guest that systemd boots
	$(SUDO) $(BIN)/rxlab package
lab-image: rxlab ## the Dockerfile built by buildah and run by podman, without a network
	$(SUDO) $(BIN)/rxlab image
lab-%: rxlab ## one VM scenario, e.g. make lab-igb-udp-hash
	$(SUDO) $(BIN)/rxlab run $*

# Each of the two may be made first, and bench writes its file anew.
LINK_STEERING = @[ ! -e docs/benchmarks-steering.md ] || grep -qs benchmarks-steering docs/benchmarks.md || \
  printf '\nWhat steering wins beside its peers: [benchmarks-steering.md](benchmarks-steering.md).\n' | $(SUDO) tee -a docs/benchmarks.md >/dev/null

.PHONY: bench bench-steering bench-eyes
bench-eyes: need-go deps-test ## what the page costs a viewer and the agent, and rxsteer top a host (quiet machine)
	$(GO) test -run '^$$' -bench 'Page|Viewers' -benchtime 10x ./exporter/web
	$(GO) test -run '^$$' -bench 'Second|Terminal' ./cmd/rxsteer/internal/top
	$(SUDO) $(GO) test -run '^$$' -bench Top ./cmd/rxsteer
bench: need-go deps build ## cost per packet beside peers and an A/A control, attach, read, status → docs/benchmarks.md
	$(SUDO) $(GO) run ./lab/bench -rxsteer $(BIN)/rxsteer -install -w docs/benchmarks.md
	$(LINK_STEERING)
bench-steering: need-go deps ## twelve minutes beside irqbalance, a static script and RSS++ in guests → docs/benchmarks-steering.md
	$(SUDO) $(GO) run ./lab/bench/steering -markdown docs/benchmarks-steering.md
	$(LINK_STEERING)

.PHONY: deps deps-run deps-test
deps: ; @$(SUDO) .ci/deps $(RUN_PACKAGES) $(TEST_PACKAGES) $(CHECK_PACKAGES)
deps-test: ; @$(SUDO) .ci/deps $(RUN_PACKAGES) $(TEST_PACKAGES)
deps-run: ; @$(SUDO) .ci/deps $(RUN_PACKAGES)

.PHONY: need-go
need-go:
	@command -v $(GO) >/dev/null || { echo "make: go not found: install Go 1.26 or newer from your distribution or go.dev, then run make again" >&2; exit 1; }

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) dist
