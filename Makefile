# SPDX-License-Identifier: Apache-2.0

SHELL := /usr/bin/env bash -o pipefail
.DEFAULT_GOAL := help

BIN   := $(CURDIR)/bin
TOOLS := $(BIN)/tools

# A version in the name of the file: a bump here is the whole upgrade.
CONTROLLER_GEN := $(TOOLS)/controller-gen-v0.23.0
GOLANGCI_LINT  := $(TOOLS)/golangci-lint-v2.15.0
KUSTOMIZE      := $(TOOLS)/kustomize-v5.8.1
GOTESTSUM      := $(TOOLS)/gotestsum-v1.13.0

# A system that fails prints its logs; what failed is said once more, as the last thing. make lint
# runs vet; without it, and without symbols for a debugger, building tests takes a sixth less CPU.
GO_TEST := $(GOTESTSUM) --format standard-quiet -- -vet=off -ldflags='-s -w'
# As make build: a package that it has compiled, in any folder, is not compiled again.
GO_TEST_PLAIN = CGO_ENABLED=0 $(NICE) $(GO_TEST) -trimpath

MODULES  := . test test/kind test/monitoring hack/kind
COMMANDS := manager reclaim-agent eviction-guard kubectl-5spot
# A release has one version: who names the image has named it, by the tag.
TAG       = $(word 2,$(subst :, ,$(notdir $(firstword $(subst @, ,$(IMAGE))))))
VERSION  ?= $(if $(TAG),$(TAG),$(shell git describe --tags --always --dirty 2>/dev/null || echo unknown))
RELEASE_BUILD = go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'
FUZZTIME ?= 10s
SEED     ?=
# How many machines each storm of test-judge hits.
MACHINES ?= 1000

include hack/plane.mk
include hack/kind/offline.mk

.PHONY: help
help: ## Show the targets.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "%-20s %s\n", $$1, $$2}'

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate deepcopy, CRDs, RBAC, webhook manifests, templates and reference docs.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths="./api/...;./exp/api/...;./exp/eviction/api/..."
	$(CONTROLLER_GEN) crd paths="./api/...;./exp/api/..." output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) crd paths="./exp/eviction/api/..." output:crd:dir=config/eviction-guard/crd
	$(CONTROLLER_GEN) rbac:roleName=manager-role paths=./controllers/... output:rbac:dir=config/rbac
	$(CONTROLLER_GEN) webhook paths=./internal/webhooks/... output:webhook:dir=config/webhook
	go run ./hack/reference docs/reference
	go run ./hack/clusterresourceset templates

.PHONY: build
build: ## Build the binaries into bin/.
	CGO_ENABLED=0 $(RELEASE_BUILD) -o $(BIN)/ $(COMMANDS:%=./cmd/%)

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run golangci-lint on all modules.
	@for m in $(MODULES); do (cd $$m && $(GOLANGCI_LINT) run ./...) || exit; done

# make test runs a part of the long suites, by -short; make test-all runs all of them.
SHORT ?= -short

# An API server that lives for a minute needs little memory and much CPU to collect garbage.
test-unit test-monitoring test-system: export GOGC := 400

.PHONY: test
test: ## Run the tests that every commit must pass: at least one for each feature.
	# System tests wait half of the time. The others run meanwhile, with what they leave of the cores.
	$(MAKE) --no-print-directory -j2 NICE='nice -n 5' test-system test-unit test-monitoring

.PHONY: test-all
test-all: $(GOTESTSUM) ## Run every test to its full length: by hand, and at night.
	# What make test has not shown comes first. The disasters and the orders of evictions wait half of the time. The
	# other steps run one after the other: the long system tests compare times, and use all of two cores.
	$(MAKE) -j3 test-disaster test-judge test-orders
	[ "$$(id -u)" != 0 ] || $(MAKE) test-e2e-kind-offline
	cd test/kind && $(GO_TEST) -count=1 ./...
	cd hack/kind && $(GO_TEST) -count=1 ./...
	cd test && $(GO_TEST_PLAIN) -count=1 ./lane
	$(MAKE) test-system SHORT= LONG='cuts|disaster|lane' PACKAGES=2
	$(MAKE) test-unit test-monitoring SHORT= CONCURRENT=./...

# The packages whose tests run more than one goroutine. The race detector triples the time of a
# test, and finds nothing where there is only one.
CONCURRENT ?= $(addprefix ./,reclaimagent/... exp/detach/elb exp/detach/haproxy exp/detach/wiring exp/eviction/guard \
	$(addprefix internal/,actuate apiclock audit hookclient leaving wake workers workload))

.PHONY: test-unit
test-unit: plane-kube $(GOTESTSUM) ## Run the tests that need no more than an API server.
	export KUBEBUILDER_ASSETS=$${KUBEBUILDER_ASSETS:-$(PLANE_BIN)}; \
	concurrent=$$(go list $(CONCURRENT)) && \
	$(NICE) $(GO_TEST) $(SHORT) -race -shuffle=on -timeout 20m $$concurrent && \
	others=$$(go list ./... | grep -vxF "$$concurrent" || true) && \
	{ [ -z "$$others" ] || $(GO_TEST_PLAIN) $(SHORT) -shuffle=on -timeout 20m $$others; }

.PHONY: test-monitoring
test-monitoring: $(GOTESTSUM) ## Evaluate the alerts and the dashboard in Prometheus' own engine.
	cd test/monitoring && $(NICE) $(GO_TEST) -count=1 ./...

# The packages of test/ that only make test-all runs. test-judge runs cuts, which builds managers, and
# lane runs alone, because it compares times.
LONG ?= cuts|disaster|lane|plane
# How many packages of test/ run at the same time.
PACKAGES ?= 3

.PHONY: test-system
test-system: build plane-binaries plane-node-deps plane-haproxy $(KUSTOMIZE) $(GOTESTSUM) ## Run the tests that run on the local plane.
	# Programs and manifests are no inputs that Go's test cache knows. Tests wait half of the time, so
	# three packages run together: more could use up the 128 inotify instances of a machine. e2e takes
	# longest, so it is first.
	cd test && $(GO_TEST_PLAIN) $(SHORT) -count=1 -timeout 45m -p $(PACKAGES) ./e2e $$(go list ./... | grep -vE '/($(LONG)|e2e)$$')

.PHONY: test-judge
test-judge: plane-binaries ## Test the judge, and the safety rails: cut, and in every storm.
	cd test && go test -count=1 -timeout 30m ./judge/... ./cuts
	cd test && go test -count=1 -timeout 60m ./storm -args -machines $(MACHINES)

.PHONY: test-orders
test-orders: plane-kube ## Run evictions, drains and failures in a thousand random orders.
	KUBEBUILDER_ASSETS=$${KUBEBUILDER_ASSETS:-$(PLANE_BIN)} go test -count=1 -timeout 60m ./exp/eviction -run TestAnyOrder -args -orders 1000

.PHONY: test-disaster
test-disaster: MACHINES = 100
test-disaster: build plane-binaries ## Have each disaster hit a fleet of MACHINES on the local plane.
	cd test && go test -count=1 -timeout 90m -v ./disaster -args -machines $(MACHINES)

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME.
	@grep -rlE --include='*_test.go' '^func Fuzz' api exp internal reclaimagent | xargs -n1 dirname | sort -u | while read -r dir; do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9]+' $$dir/*_test.go | cut -c6-); do \
			echo "$$dir $$f"; go test ./$$dir -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) || exit; \
		done; done

.PHONY: verify
verify: generate ## Check that generated files and go.mod are up to date.
	@for m in $(MODULES); do (cd $$m && go mod tidy) || exit; done
	@git diff --exit-code || { echo 'run `make generate` and `go mod tidy`, and commit what they change'; exit 1; }

.PHONY: check
check: verify lint test ## What every change must pass.

# What the demo runs, in the order in which it is built. As root, with runc, its Node is real.
DEMO_REAL  := $(shell [ "$$(id -u)" != 0 ] || ! command -v runc >/dev/null || echo plane-node)
DEMO_STEPS := build plane-kube plane-core plane-infrastructure $(DEMO_REAL) demo-binary

.PHONY: demo
demo: ## Watch a machine join, its owner come back, its pods stop, and the machine go.
	@echo 'The story takes half a minute. The first time, 5-Spot, Kubernetes and Cluster API are built from'
	@echo 'Go modules first, which takes some 18 minutes on two cores with empty caches.'
	@n=0; for step in $(DEMO_STEPS); do n=$$((n + 1)); \
		echo "[$$((SECONDS / 60)) min] $$n of $(words $(DEMO_STEPS)): make $$step"; \
		$(MAKE) --silent --no-print-directory $$step 2> >(sed '/^go: downloading/d' >&2) || exit; \
	done
	@PLANE_BIN=$(PLANE_BIN) $(BIN)/demo --bin $(BIN)

.PHONY: demo-binary
demo-binary:
	cd test && go build -buildvcs=false -o $(BIN)/demo ./demo

.PHONY: bench
bench: build plane-binaries ## Measure, side by side with peers and limits.
	cd test && go run ./bench --bin $(BIN) $(BENCH)

# What config/ calls the image of the manager, the agent and the guard, until a release is made.
DEV_IMAGE := ghcr.io/finos/cluster-api-addon-provider-5spot:dev
ifeq ($(origin IMAGE),undefined)
IMAGE     := $(DEV_IMAGE:dev=$(VERSION))
endif
OUT       ?= out
PLATFORMS ?= linux/amd64 linux/arm64
PLUGIN_PLATFORMS ?= $(foreach os,linux darwin windows,$(os)/amd64 $(os)/arm64)
comma     := ,

.PHONY: release
release: release-manifests plugin-binaries ## Write all that a release of IMAGE is made of, but the image, into OUT.

# Whoever asks a program which version it is wants to hear the tag of its image.
.PHONY: agreed
agreed:
	@[ '$(TAG)' = '$(VERSION)' ] || { echo 'IMAGE=$(IMAGE) has the tag "$(TAG)", and VERSION is $(VERSION): give IMAGE a tag, and nothing else a version' >&2; exit 1; }

.PHONY: release-manifests
release-manifests: agreed $(KUSTOMIZE) ## Write the manifests of a release of IMAGE into OUT.
	@mkdir -p $(OUT)
	$(KUSTOMIZE) build config/default | sed 's|$(DEV_IMAGE)|$(IMAGE)|g' >$(OUT)/addon-components.yaml
	$(KUSTOMIZE) build config/shard | sed 's|$(DEV_IMAGE)|$(IMAGE)|g' >$(OUT)/shard-components.yaml
	@for f in templates/*.yaml; do sed 's|$(DEV_IMAGE)|$(IMAGE)|g' $$f >$(OUT)/$${f##*/}; done
	$(KUSTOMIZE) build --reorder none config/eviction-guard | sed 's|$(DEV_IMAGE)|$(IMAGE)|g' >$(OUT)/eviction-guard.yaml
	$(KUSTOMIZE) build config/eviction-guard/policies >$(OUT)/eviction-guard-policies.yaml
	$(KUSTOMIZE) build config/policy >$(OUT)/owner-policy.yaml
	cp metadata.yaml $(OUT)/

# The same sources give the same bytes, wherever they lie: no paths, and no state of
# the repository but VERSION.
.PHONY: image-binaries
image-binaries: agreed $(PLATFORMS:%=image-binaries-%) ## Build the programs of the image for all PLATFORMS into OUT/image.

.PHONY: $(PLATFORMS:%=image-binaries-%)
$(PLATFORMS:%=image-binaries-%): image-binaries-%:
	CGO_ENABLED=0 GOOS=$(*D) GOARCH=$(*F) $(RELEASE_BUILD) -o $(OUT)/image/$*/ ./cmd/manager ./cmd/reclaim-agent ./cmd/eviction-guard

.PHONY: plugin-binaries
plugin-binaries: agreed $(PLUGIN_PLATFORMS:%=plugin-binary-%) ## Build kubectl's plugin for all PLUGIN_PLATFORMS, with checksums, into OUT.
	cp cmd/kubectl-5spot/kubectl_complete-5spot $(OUT)/
	cd $(OUT) && sha256sum $(foreach p,$(PLUGIN_PLATFORMS),$(call plugin,$(p))) >kubectl-5spot.sha256

# The file of a platform such as windows/amd64.
plugin = kubectl-5spot-$(subst /,-,$(1))$(if $(filter windows/%,$(1)),.exe)

.PHONY: $(PLUGIN_PLATFORMS:%=plugin-binary-%)
$(PLUGIN_PLATFORMS:%=plugin-binary-%): plugin-binary-%:
	CGO_ENABLED=0 GOOS=$(*D) GOARCH=$(*F) $(RELEASE_BUILD) -o $(OUT)/$(call plugin,$*) ./cmd/kubectl-5spot

.PHONY: docker-build
docker-build: image-binaries ## Build IMAGE for this machine's platform.
	docker buildx build --load -f Dockerfile -t $(IMAGE) $(OUT)/image

.PHONY: docker-push
docker-push: image-binaries ## Build IMAGE for all PLATFORMS and push it.
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) docker buildx build --provenance=false \
		--platform $(subst $() $(),$(comma),$(PLATFORMS)) --output type=registry,name=$(IMAGE),rewrite-timestamp=true \
		-f Dockerfile $(OUT)/image

E2E_CONFIG    ?= config/5spot.yaml
E2E_ARTIFACTS ?= $(CURDIR)/out/e2e
E2E_ARGS      ?=

.PHONY: test-e2e-kind
test-e2e-kind: ## Run the specs on kind, with Docker.
	$(MAKE) release-manifests docker-build IMAGE=$(DEV_IMAGE) OUT=$(CURDIR)/out/kind PLATFORMS=linux/$$(go env GOARCH)
	cd test/kind && CNI=$${CNI:-$$(go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api/test)/e2e/data/cni/kindnet/kindnet.yaml} \
		go test -count=1 -timeout 90m -v -run '^TestE2E$$' . \
		-args -e2e.config=$(E2E_CONFIG) -e2e.artifacts-folder=$(E2E_ARTIFACTS) $(E2E_ARGS)

$(TOOLS)/controller-gen-%: PKG = sigs.k8s.io/controller-tools/cmd/controller-gen
$(TOOLS)/golangci-lint-%: PKG = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/kustomize-%: PKG = sigs.k8s.io/kustomize/kustomize/v5
$(TOOLS)/gotestsum-%: PKG = gotest.tools/gotestsum
$(TOOLS)/controller-gen-% $(TOOLS)/golangci-lint-% $(TOOLS)/kustomize-% $(TOOLS)/gotestsum-%:
	@mkdir -p $(@D)/tmp-$(@F)
	GOBIN=$(@D)/tmp-$(@F) GOFLAGS= go install $(PKG)@$*
	@mv $(@D)/tmp-$(@F)/* $@ && rmdir $(@D)/tmp-$(@F)
