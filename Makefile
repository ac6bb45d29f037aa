# Tidemark. `make help` lists what there is; docs/testing.md says more of the tests.

GO       ?= go
BIN      := bin/tidemark
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS  := -s -w $(if $(VERSION),-X main.version=$(VERSION))
TOOL     := $(GO) tool -modfile=.ci/tools.mod

# Checks, tests and the program are compiled with the same flags, so that each package is compiled
# once: the go command keeps what it compiles by its flags.
export CGO_ENABLED ?= 0
export GOFLAGS     := -trimpath $(filter-out -trimpath,$(GOFLAGS))

.DEFAULT_GOAL := help
.PHONY: help build demo test race lint bench bench-compare bench-txn faults dump-load nemesis
.PHONY: sim sim-soak sim-shrink planted hostile overload recording generate golden check-generated clean helm-check monitoring
.PHONY: monitoring-check monitoring-demo man deb check-deploy reference clients memory
.PHONY: release release-changelog release-check rolling console console-check console-pictures

help: ## show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
		awk -F ':.*## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

build: ## compile bin/tidemark, one static binary
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/tidemark

demo: build ## run a cluster of three nodes in one process (DEMO_FLAGS="--dir D ...")
	$(BIN) demo $(DEMO_FLAGS)

test: reference ## run all tests
	$(GO) test -vet=off -timeout 15m ./... # make lint runs the whole of vet

race: reference ## run all tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 40m ./...

reference: ## build the etcd that tests compare with, once, into the user's cache directory
	@$(GO) run ./bench/proof/reference/install >/dev/null

clients: build ## run unmodified clients of etcd against four servers, and kill one (CLIENT_FLAGS)
	$(GO) test -vet=off ./bench/proof/clients -clients -v -count 1 -timeout 15m $(CLIENT_FLAGS)

console: ## build the web console's pages again (needs Node and npm)
	cd deploy/embedded/console/app && npm ci --no-audit --no-fund && npm run check && npm run build

console-check: build ## see that the console's pages are built from their sources, and test them in Chromium
	@built=$$(mktemp -d) && cd deploy/embedded/console/app && npm ci --no-audit --no-fund --silent && \
		npm run --silent check && node build.mjs $$built && diff -r $$built ../dist && rm -r $$built
	deploy/embedded/console/browser/run.sh $(abspath $(BIN)) $(CONSOLE_FLAGS)

console-pictures: build ## take the pictures of docs/images again (some minutes)
	deploy/embedded/console/browser/run.sh $(abspath $(BIN)) --shots $(abspath docs/images)

lint: check-generated ## check formatting, generated code and imports, vet and staticcheck
	@unformatted=$$(git ls-files '*.go' | xargs gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(TOOL) staticcheck ./...
	@for level in rpc/release/golden/testdata/golden/level*; do \
		$(TOOL) buf breaking --against $$level/rpc.binpb && \
		(cd placement && $(GO) tool -modfile=../.ci/tools.mod buf breaking --path bootstrap \
			--path server --path store --against ../$$level/placement.binpb) || exit 1; \
	done
	$(GO) test -vet=off -count 1 -run 'TestImports|TestNothingBelowCommands' ./cmd/tidemark

bench: build ## run the standard workloads against three nodes on this machine (BENCH_FLAGS)
	bench/local.sh $(BENCH_FLAGS)

bench-compare: build ## measure Tidemark side by side with a three-member etcd (COMPARE_FLAGS)
	bench/compare/run.sh $(COMPARE_FLAGS)

bench-txn: ## measure what transactions cost beside single reads and writes (TXN_FLAGS)
	$(GO) run ./bench/txncost $(TXN_FLAGS)

faults: build ## break real processes under load, 15 minutes (FAULT_FLAGS="-run TestKillOne")
	$(GO) test ./bench/proof/faults -faults -v -count 1 -timeout 40m $(FAULT_FLAGS)

TIMES ?= 20
ROWS ?= 1000000
CLIENTS ?= 64
HASH ?= 0
dump-load: build ## dump a keyspace under transfers: TIMES=20 ROWS=1000000 CLIENTS=64 HASH=0
	$(GO) test ./bench/proof/faults -faults -v -count 1 -timeout 2h \
		-run '^TestDumpUnderTransactions$$' -dump.times $(TIMES) -dump.rows $(ROWS) \
		-dump.clients $(CLIENTS) -dump.hash $(HASH) $(FAULT_FLAGS)

# given is the value of a variable if it was given to make, and otherwise the default of a target.
given = $(if $(filter command line environment,$(origin $(1))),$($(1)),$(2))
SEED ?= 1
SEEDS ?= 1
MINUTES ?= 1
SIM := bin/sim.test
SIM_BUILD := $(GO) test -tags invariants -c -o $(SIM) ./bench/proof/sim
SIM_TRANSACTIONS = $(if $(TRANSACTIONS),-sim.transactions) $(if $(BACKUPS),-sim.backups)
sim: ## break a simulated cluster: SEED=1 SEEDS=1 MINUTES=1 TRANSACTIONS= BACKUPS=, or SCHEDULE=file
	$(SIM_BUILD)
	$(SIM) -test.run '^TestSim$$' -test.v $(if $(SCHEDULE),-sim.schedule $(SCHEDULE), \
		-sim.seed $(SEED) -sim.seeds $(SEEDS) -sim.minutes $(MINUTES) $(SIM_TRANSACTIONS))

HOURS ?= 1
sim-soak: ## simulate seed after seed on all processors: HOURS=1 SEED=1 TRANSACTIONS=
	$(SIM_BUILD)
	$(SIM) -test.run '^TestSoak$$' -test.timeout 0 -sim.hours $(HOURS) -sim.seed $(SEED) \
		-sim.minutes $(call given,MINUTES,6) $(SIM_TRANSACTIONS)

sim-shrink: ## find the smallest part of a schedule that still fails: SCHEDULE=file
	$(SIM_BUILD)
	$(SIM) -test.run TestShrinkSchedule -test.v -test.timeout 0 -sim.schedule $(SCHEDULE)

PLANTED ?= $(basename $(notdir $(sort $(wildcard bench/proof/planted/patches/*.patch))))
# The copies with bugs are in a directory that ./... does not match.
planted: ## see that each planted bug is noticed, most by the simulation: PLANTED="one another"
	@mkdir -p bin; failed=; for bug in $(PLANTED); do \
		overlay=$$($(GO) run ./bench/proof/planted/overlay \
			-bug $$bug -out bin/_planted/$$bug) || exit 1; \
		set -- $$($(GO) run ./bench/proof/planted/overlay -bug $$bug -test); \
		if [ $$# = 2 ]; then \
			$(GO) test -tags invariants -overlay $$overlay -count 1 -run "^$$2\$$" $$1 \
				>bin/planted.out 2>&1; \
			if grep -q "^--- FAIL: $$2 \|^panic: invariant violated" bin/planted.out; then \
				echo "PLANTED | $$bug | $$2"; \
			else tail -n 5 bin/planted.out; failed="$$failed $$bug"; fi; \
			continue; \
		fi; \
		$(GO) test -tags invariants -c -overlay $$overlay -o bin/planted.test ./bench/proof/sim || \
			exit 1; \
		bin/planted.test -test.run '^TestPlanted$$' -test.timeout 0 \
			-sim.minutes $(call given,MINUTES,3) $(PLANTED_FLAGS) \
			| grep "PLANTED |.*| seed" || failed="$$failed $$bug"; \
	done; if [ -n "$$failed" ]; then echo "not noticed:$$failed"; exit 1; fi

FROM ?=
rolling: ## upgrade real servers under load, one after the other, and back: FROM=COMMIT
	$(GO) test -vet=off ./bench/proof/rolling -count 1 -v -rolling -rolling.from '$(FROM)'

nemesis: build ## break real processes by a random schedule: MINUTES=10 SEED=1 (NEMESIS_FLAGS)
	GO="$(GO)" bench/proof/nemesis/run.sh -duration $(call given,MINUTES,10)m \
		$(if $(call given,SEED),-seed $(SEED)) $(NEMESIS_FLAGS)

hostile: build ## have hostile clients abuse real servers: MINUTES=10 SEED=1 TLS=1 (HOSTILE_FLAGS)
	$(GO) build -o bin/hostile ./bench/proof/hostile
	bin/hostile -duration $(call given,MINUTES,10)m $(if $(call given,SEED),-seed $(SEED)) \
		$(if $(TLS),-tls) $(HOSTILE_FLAGS)

recording: build ## record what a user sees when a server is killed under load: docs/images/kill-9.svg
	$(GO) run ./bench/recording

overload: build ## ask servers for three times as much as they can do: MINUTES=15 (OVERLOAD_FLAGS)
	$(GO) build -o bin/overload ./bench/proof/overload
	bin/overload -duration $(call given,MINUTES,15)m $(OVERLOAD_FLAGS)

LIMITS ?= 512 1024 4096
memory: build ## load servers in memory control groups, as root: LIMITS="512 1024 4096" (MiB)
	$(GO) build -o bin/bombs ./bench/proof/hostile/bombs
	BIN=$(BIN) HOSTILE=bin/bombs LIMITS="$(LIMITS)" bench/proof/memory/run.sh

GENERATED ?= .
generate: ## generate the protobuf code again
	$(TOOL) buf generate -o $(GENERATED)
	$(TOOL) buf generate -o $(GENERATED) --template buf.gen.data.yaml
	cd placement && for of in buf.gen.yaml buf.gen.etcd.yaml; do \
		$(GO) tool -modfile=../.ci/tools.mod buf generate \
			-o $(abspath $(GENERATED))/placement --template $$of || exit 1; \
	done

# Packages with golden files: what each release writes.
GOLDEN = $$(git grep -l 'release/golden"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')
golden: ## write golden files that are not there yet, of new formats and of a new level
	$(GO) test -count 1 -tags golden -run 'TestGolden|TestStream|TestMessages' $(GOLDEN) \
		./rpc/release/golden

check-generated: ## see that the committed protobuf code is what `make generate` makes
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(MAKE) -s generate GENERATED="$$dir" && \
	for f in $$( (cd "$$dir" && find . -name '*.pb.go'; \
		cd "$(CURDIR)" && find . -name '*.pb.go') | sort -u); do \
		cmp "$$dir/$$f" "$$f" || { echo "run make generate"; exit 1; }; \
	done

# The chart's checks are a module of their own; they need the program, for its flags.
helm-check: ## lint and render the Helm chart, check its objects, and start its command lines
	CGO_ENABLED=0 $(GO) build -o $(BIN) ./cmd/tidemark
	cd deploy/helm && $(GO) vet . && $(GO) test -count 1 -timeout 10m .

helm-files: ## copy the rules and dashboards of deploy/monitoring into the Helm chart
	@for kind in rules/*.rules.yaml dashboards/*.json; do \
		to=deploy/helm/tidemark/files/$${kind%%/*}; rm -rf $$to; \
		for f in deploy/monitoring/$$kind; do \
			[ ! -e "$$f" ] || { mkdir -p $$to && cp "$$f" $$to/; }; \
		done; \
	done
RULES := deploy/monitoring/rules
monitoring: ## generate the dashboards and alert rules again
	$(GO) run ./deploy/monitoring/generate

monitoring-check: ## have promtool check the alert rules, and run their cases
	@command -v promtool >/dev/null || { echo "promtool is not installed. It comes with Prometheus;" \
		"on Debian and Ubuntu:"; \
		echo "    apt-get install --no-install-recommends prometheus"; exit 1; }
	promtool check rules $(RULES)/tidemark.rules.yaml
	promtool test rules $(RULES)/tidemark.rules.test.yaml

monitoring-demo: build ## ask Prometheus each query of each dashboard, with a demo under load
	deploy/monitoring/check.sh
KIT := bin/kit
man: build ## write manual pages and completions of shells into bin/kit
	rm -rf $(KIT)/man $(KIT)/completions
	$(BIN) man --dir $(KIT) -o raw >/dev/null

# All of a release is made with this version of Go, which the go command gets where another is
# installed: the same commit gives the same bytes. RELEASE_GO=local takes the installed one.
RELEASE_GO ?= go1.26.8
RELEASE := GOTOOLCHAIN=$(RELEASE_GO) $(GO) run ./deploy/release
release: ## make all files of a release in bin/release: VERSION=v0.1.0, or SNAPSHOT=1
	$(RELEASE) build $(if $(SNAPSHOT),-snapshot,-version '$(VERSION)')

release-changelog: ## begin the section of a release in CHANGELOG.md: VERSION=v0.1.0
	$(RELEASE) changelog -version '$(VERSION)'

release-check: ## make a release twice in scratch clones, compare, install: SHARE_CACHE=1 is faster
	GO="$(GO)" deploy/release/check.sh

ARCH ?= $(shell $(GO) env GOARCH)
deb: ## make a package for Debian and Ubuntu in bin/: ARCH=amd64 PACKAGE_VERSION=1.2.3
	$(RELEASE) deb -arch $(ARCH) $(if $(PACKAGE_VERSION),-package-version '$(PACKAGE_VERSION)')

check-deploy: ## check the units, recipes and scripts of deploy/, with the tools that are there
	GO="$(GO)" deploy/check.sh

clean: ## remove what was built
	rm -rf bin coverage.out
