# Everything a contributor runs. `make` alone lists it.

GO          ?= go
PKG         ?= ./...
# Most tests wait for a server or a lease, not for a processor.
TESTFLAGS   ?= -parallel 8
# One 32-bit system, one without Unix calls, one Unix that is not Linux. Nothing here depends on arm64 or amd64 alone.
PLATFORMS   ?= linux/386 windows/amd64 darwin/arm64
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.0
NEWEST_REDIS = github.com/redis/go-redis/v9@latest

.DEFAULT_GOAL := help
.PHONY: help generate verify test race bench bench-all bench-page drill interop lint platforms newest redis

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## write the generated Go anew from the scripts
	$(GO) generate ./gen ./compat/...

verify: ## fail if generated code or go.mod is not what its sources say
	cd gen && $(GO) tool luagen -check -scripts ../scripts -out .
	for dir in $(wildcard compat/*/internal/script); do $(GO) tool luagen -check $$dir || exit 1; done
	$(GO) mod tidy -diff
	$(GO) mod verify

test: redis ## run all tests; installs a Redis server when there is none
	$(GO) test $(TESTFLAGS) $(PKG)

race: redis ## the tests under the race detector
	$(GO) test -race $(TESTFLAGS) $(PKG)

bench: redis ## the benchmarks of the primitives
	$(GO) test -run '^$$' -bench . -benchmem -p 1 . ./queue ./lock ./rpc ./compat/...

bench-all: redis ## luatomic, raw commands and peers in one run, on a container where there is one; ARGS=-quick for a short one
	cd bench && $(GO) run . run $(ARGS)

bench-page: ## docs/benchmarks.md and its plots from bench/result.json
	cd bench && $(GO) run . plot result.json ../docs/plots && $(GO) run . page result.json ../docs/plots >page.tmp && \
	  mv page.tmp ../docs/benchmarks.md

drill: redis ## the long fault runs: kills, a model, a million due, a million calls; seeds are printed
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 20m -run 'Failpoint' .
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 20m -run 'Kill|ManyDue|WhileMoving' ./queue -kills=1000
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 20m -run 'Kill|RPCLoses|RPCMany' ./rpc
	$(GO) test -v -timeout 20m -run 'Model' ./queue ./lock -rapid.checks=5000
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 30m -run 'LockHistor|LockSurvives|IdleWaiters' ./lock -lockops=1000000

interop: redis ## the dialects against the real Sidekiq, Redis in Action and ActionHero
	$(GO) test $(TESTFLAGS) -tags interop -p 1 -timeout 20m -run TestInterop ./compat/...

lint: ## gofmt, vet and staticcheck
	@files=$$(gofmt -l $$(find . -name '*.go' -not -path '*/testdata/*')); \
	  if [ -n "$$files" ]; then echo "gofmt wants to change:"; echo "$$files"; exit 1; fi
	$(GO) vet -tags interop ./...
	$(GO) run $(STATICCHECK) -tags interop ./...

platforms: ## vet everything, tests too, for the systems and word sizes in PLATFORMS
	@for platform in $(PLATFORMS); do \
	  echo "$$platform"; \
	  GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) vet -tags interop ./... || exit 1; \
	done

newest: redis ## the tests with the newest go-redis; go.mod stays as it is
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	  cp go.mod "$$dir/go.mod" && cp go.sum "$$dir/go.sum" && \
	  $(GO) get -modfile="$$dir/go.mod" $(NEWEST_REDIS) && \
	  $(GO) test $(TESTFLAGS) -modfile="$$dir/go.mod" $(PKG)

redis:
	@sh tools/ci/ensure-redis.sh
