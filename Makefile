# Everything a contributor runs. `make` alone lists it.

GO          ?= go
# The packages that take longest first, so that the last minute is not one of them alone.
PKG         ?= ./tools/... . ./rpc ./lock ./queue ./internal/testkit/drill ./...
# What a change of the library needs: all but the tools. They wait more than they compute, so three run at a time.
LIBRARY      = ./rpc ./lock ./queue . $$($(GO) list ./... | grep -v /tools/)
# Most tests wait for a server or a lease, not for a processor.
TESTFLAGS   ?= -parallel 8
# One 32-bit system, one without Unix calls, one Unix that is not Linux. Nothing here depends on arm64 or amd64 alone.
PLATFORMS   ?= linux/386 windows/amd64 darwin/arm64
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.0
WITHSERVER   = $(GO) run ./luatomictest/withserver
# What "make check" compares with.
BASE        ?= main
NEWEST_REDIS = github.com/redis/go-redis/v9@latest

.DEFAULT_GOAL := help
.PHONY: help generate verify test check test-all test-modules race bench bench-all bench-page instructions drill interop browser cover-lua mutate precision lint platforms newest redis

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

generate: ## write the generated Go anew from the scripts
	$(GO) generate ./gen/... ./compat/... ./examples/...
	$(GO) tool luagen doc -o docs/scripts.md scripts

verify: ## fail if generated code or go.mod is not what its sources say
	for domain in $(notdir $(wildcard gen/*)); do (cd gen/$$domain && \
	  $(GO) tool luagen -check -strict -domain $$domain -scripts ../../scripts/$$domain -out .) || exit 1; done
	for dir in $(wildcard compat/*/internal/script) $(sort $(dir $(wildcard examples/*/*.lua))); do $(GO) tool luagen -check -strict $$dir || exit 1; done
	$(GO) tool luagen doc -check -o docs/scripts.md scripts
	for module in . otel prometheus; do (cd $$module && $(GO) mod tidy -diff) || exit 1; done
	$(GO) mod verify

test: redis ## the tests that a change of the library needs, three minutes; installs a Redis server when there is none
	$(WITHSERVER) $(GO) test -short -p 3 $(TESTFLAGS) $(LIBRARY)

check: lint verify redis ## lint, generated code, and the tests of what differs from BASE (default: main)
	@packages=$$(sh tools/ci/changed.sh $(BASE)) && if [ -n "$$packages" ]; then \
	  $(WITHSERVER) $(GO) test -short $(TESTFLAGS) $$packages; else echo 'check: no package differs from $(BASE)'; fi

test-all: redis ## every test, on a container: needs a Docker engine; LUATOMIC_REDIS_IMAGE names the image
	@$(GO) test -tags container -list TestIntegration . | grep -q '^TestIntegration' || \
	  { echo 'test-all: no test is built with the tag container' >&2; exit 1; }
	LUATOMIC_REQUIRE=docker $(GO) run -tags container ./luatomictest/withserver $(GO) test -tags container $(TESTFLAGS) $(PKG)

test-modules: redis ## vet and test the modules beside the root: otel, prometheus
	@for module in otel prometheus; do \
	  echo "$$module" && (cd $$module && $(GO) vet ./... && LUATOMIC_REQUIRE=local $(GO) test -race ./...) || exit 1; \
	done

race: redis ## the tests under the race detector; TAGS=container for a container
	$(GO) run $(if $(TAGS),-tags $(TAGS)) ./luatomictest/withserver $(GO) test -race $(TESTFLAGS) $(PKG)

bench: redis ## the benchmarks of the primitives
	$(GO) test -run '^$$' -bench . -benchmem -p 1 . ./queue ./lock ./rpc ./compat/...

bench-all: redis ## luatomic, raw commands and peers in one run, on a container where there is one; ARGS=-quick for a short one, ROWS=^lock for some
	cd bench && $(GO) run -tags container . run $(if $(ROWS),-rows '$(ROWS)') $(ARGS)

bench-page: ## plots, docs/benchmarks.md and the figures of the README from bench/result.json
	cd bench && $(GO) run . publish

instructions: redis ## fail if a call's instructions on the server differ from bench/instructions.json; ARGS=-renew writes it, ROWS=lock counts some
	@sh tools/ci/ensure-valgrind.sh
	cd bench && $(GO) run . instructions $(if $(ROWS),-rows '$(ROWS)') $(ARGS)

drill: redis ## the long fault runs: everything at once, kills, a model, a million due, a million calls; seeds are printed
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 60m -run 'TestDrill' ./internal/testkit/drill $(ARGS)
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 20m -run 'Failpoint' .
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 20m -run 'Kill|ManyDue|WhileMoving|Growth' ./queue -kills=1000
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 20m -run 'Kill|RPCLoses|RPCMany|RPCDrill' ./rpc
	$(GO) test -v -timeout 20m -run 'Model' ./queue ./lock -rapid.checks=5000
	LUATOMIC_DRILL=1 $(GO) test -v -timeout 30m -run 'LockHistor|LockSurvives|IdleWaiters' ./lock -lockops=1000000

interop: redis ## the dialects against the real Sidekiq, Redis in Action and ActionHero
	$(GO) run $(if $(TAGS),-tags $(TAGS)) ./luatomictest/withserver $(GO) test $(TESTFLAGS) -tags interop -p 2 -timeout 20m -run TestInterop ./compat/...

browser: redis ## the page in headless Chromium; SCREENS=FOLDER keeps its pictures
	cd web/browser && $(GO) vet ./... && \
	  LUATOMIC_SCREENSHOTS=$(if $(SCREENS),$(abspath $(SCREENS))) $(GO) test -timeout 5m ./...

cover-lua: redis ## which statements of all scripts the tests of the domains and of the dialects run; profile in cover-lua.out
	$(GO) tool luagen cover -scripts scripts,compat -o cover-lua.out $(GO) test $(TESTFLAGS) . ./queue ./lock/... ./rpc ./compat/...

mutate: redis ## which conditions of a script, or of a folder's, no test would miss; SCRIPT=scripts/lock/try.lua PKG=./lock RUN=Lock
	$(GO) tool luagen mutate $(ARGS) $(SCRIPT) $(GO) test -run '$(RUN)' $(PKG)

precision: ## how often luagen's findings are right, on a sample of public scripts; fetches them
	$(GO) run ./tools/luagen/precision $(ARGS)

lint: ## gofmt, vet and staticcheck
	@files=$$(gofmt -l $$(find . -name '*.go' -not -path '*/testdata/*')); \
	  if [ -n "$$files" ]; then echo "gofmt wants to change:"; echo "$$files"; exit 1; fi
	$(GO) vet -tags interop,container ./...
	$(GO) run $(STATICCHECK) -tags interop,container ./...

platforms: ## vet everything, tests too, for the systems and word sizes in PLATFORMS
	@for platform in $(PLATFORMS); do \
	  echo "$$platform"; \
	  GOOS=$${platform%/*} GOARCH=$${platform#*/} $(GO) vet -tags interop,container ./... || exit 1; \
	done

newest: redis ## the tests with the newest go-redis; go.mod stays as it is
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	  cp go.mod "$$dir/go.mod" && cp go.sum "$$dir/go.sum" && \
	  $(GO) get -modfile="$$dir/go.mod" $(NEWEST_REDIS) && \
	  $(WITHSERVER) $(GO) test $(TESTFLAGS) -modfile="$$dir/go.mod" $(PKG)

redis:
	@sh tools/ci/ensure-redis.sh
