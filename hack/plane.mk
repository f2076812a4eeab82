# The local plane: every process a Cluster API test needs, built from pinned Go
# modules and run without a container runtime. See docs/local-plane.md.
#
# Versions live in the go.mod files below hack/ and nowhere else. A binary is
# rebuilt when its module, its sources or its version changed.

PLANE_BIN ?= $(CURDIR)/bin/plane

plane_version = $(shell sed -n 's|^require ||; s|^[[:space:]]*$(2) \(v[^ ]*\).*|\1|p' hack/$(1)/go.mod)
plane_dir     = $$(cd hack/$(1) && go list -m -f '{{.Dir}}' $(2))
plane_minor   = $(word 2,$(subst ., ,$(1)))

PLANE_KUBE_VERSION := $(call plane_version,kube,k8s.io/kubernetes)
PLANE_CAPI_VERSION := $(call plane_version,capi,sigs.k8s.io/cluster-api)
PLANE_DEV_VERSION  := $(call plane_version,capi,sigs.k8s.io/cluster-api/test)
PLANE_CRI_VERSION  := $(call plane_version,containerd,github.com/containerd/containerd/v2)

plane_build      = CGO_ENABLED=0 go build -trimpath -buildvcs=false
plane_strip      = -s -w
plane_kube_flags = -X k8s.io/component-base/version.gitVersion=$(PLANE_KUBE_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 \
	-X k8s.io/component-base/version.gitMinor=$(call plane_minor,$(PLANE_KUBE_VERSION))
plane_capi_flags = -X sigs.k8s.io/cluster-api/version.gitVersion=$(1) \
	-X sigs.k8s.io/cluster-api/version.gitMajor=1 \
	-X sigs.k8s.io/cluster-api/version.gitMinor=$(call plane_minor,$(1))

PLANE_KUBE_COMMANDS := etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl
PLANE_CAPI_COMMANDS := capi-core capi-kubeadm-bootstrap capi-kubeadm-control-plane capi-dev clusterctl
PLANE_CRI_COMMANDS  := containerd containerd-shim-runc-v2 ctr
PLANE_CNI_COMMANDS  := ptp host-local loopback
PLANE_MANIFESTS     := capi-core capi-kubeadm-bootstrap capi-kubeadm-control-plane capi-dev

plane_path_capi-core                  := sigs.k8s.io/cluster-api/core
plane_path_capi-kubeadm-bootstrap     := sigs.k8s.io/cluster-api/bootstrap/kubeadm
plane_path_capi-kubeadm-control-plane := sigs.k8s.io/cluster-api/controlplane/kubeadm
plane_path_capi-dev                   := ./cmd/capi-dev
plane_path_clusterctl                 := sigs.k8s.io/cluster-api/cmd/clusterctl
plane_config_capi-core                  := core
plane_config_capi-kubeadm-bootstrap     := bootstrap/kubeadm
plane_config_capi-kubeadm-control-plane := controlplane/kubeadm
plane_config_capi-dev                   := infrastructure/docker

.PHONY: plane-binaries
plane-binaries: plane-kube $(PLANE_BIN)/kube-proxy-health plane-capi plane-node plane-infrastructure ## Build everything the local plane runs.

.PHONY: plane-kube
plane-kube: $(addprefix $(PLANE_BIN)/,$(PLANE_KUBE_COMMANDS)) ## Build etcd and Kubernetes, one binary of many names.

$(PLANE_BIN)/kubeplane: hack/kube/go.mod hack/kube/go.sum $(wildcard hack/kube/cmd/kubeplane/*.go)
	cd hack/kube && $(plane_build) -ldflags '$(plane_strip) $(plane_kube_flags)' -o $@ ./cmd/kubeplane
	@touch $@

$(addprefix $(PLANE_BIN)/,$(PLANE_KUBE_COMMANDS)): $(PLANE_BIN)/kubeplane
	@ln -sf kubeplane $@

$(PLANE_BIN)/kube-proxy-health: hack/kube/go.mod hack/kube/go.sum $(wildcard hack/kube/cmd/kube-proxy-health/*.go)
	cd hack/kube && $(plane_build) -ldflags '$(plane_strip)' -o $@ ./cmd/kube-proxy-health
	@touch $@

.PHONY: plane-capi
plane-capi: $(addprefix $(PLANE_BIN)/,$(PLANE_CAPI_COMMANDS)) $(PLANE_MANIFESTS:%=$(PLANE_BIN)/manifests/%.yaml) ## Build Cluster API's managers, clusterctl and their manifests.

$(PLANE_BIN)/capi-dev: $(wildcard hack/capi/cmd/capi-dev/*.go)
$(addprefix $(PLANE_BIN)/,$(PLANE_CAPI_COMMANDS)): $(PLANE_BIN)/%: hack/capi/go.mod hack/capi/go.sum
	cd hack/capi && $(plane_build) -ldflags '$(plane_strip) $(call plane_capi_flags,$(if $(filter capi-dev,$*),$(PLANE_DEV_VERSION),$(PLANE_CAPI_VERSION)))' -o $@ $(plane_path_$*)
	@touch $@

$(PLANE_BIN)/manifests/%.yaml: hack/capi/go.mod | $(PLANE_BIN)/kubectl
	@mkdir -p $(@D)
	$(PLANE_BIN)/kubectl kustomize $(call plane_dir,capi,sigs.k8s.io/cluster-api$(if $(filter capi-dev,$*),/test))/$(plane_config_$*)/config/default >$@.tmp
	@mv $@.tmp $@

.PHONY: plane-core
plane-core: $(PLANE_BIN)/capi-core $(PLANE_BIN)/manifests/capi-core.yaml ## Build Cluster API's core manager alone.

.PHONY: plane-node
plane-node: $(addprefix $(PLANE_BIN)/,$(PLANE_CRI_COMMANDS)) $(addprefix $(PLANE_BIN)/cni/,$(PLANE_CNI_COMMANDS)) ## Build the container runtime and network plugins of real nodes.

$(addprefix $(PLANE_BIN)/,$(PLANE_CRI_COMMANDS)): $(PLANE_BIN)/%: hack/containerd/go.mod hack/containerd/go.sum
	cd hack/containerd && $(plane_build) -tags 'no_btrfs no_devmapper no_zfs' -ldflags '$(plane_strip) -X github.com/containerd/containerd/v2/version.Version=$(PLANE_CRI_VERSION)' -o $@ github.com/containerd/containerd/v2/cmd/$*
	@touch $@

$(addprefix $(PLANE_BIN)/cni/,$(PLANE_CNI_COMMANDS)): $(PLANE_BIN)/cni/%: hack/containerd/go.mod hack/containerd/go.sum
	cd hack/containerd && $(plane_build) -ldflags '$(plane_strip)' -o $@ github.com/containernetworking/plugins/plugins/$(if $(filter host-local,$*),ipam,main)/$*
	@touch $@

.PHONY: plane-infrastructure
plane-infrastructure: $(PLANE_BIN)/plane-infrastructure $(PLANE_BIN)/plane-runc $(PLANE_BIN)/pause ## Build the infrastructure provider of the tests.

plane_infrastructure_sources := $(shell find test/infrastructure -name '*.go' ! -name '*_test.go' 2>/dev/null)

$(PLANE_BIN)/plane-infrastructure: test/go.mod test/go.sum $(plane_infrastructure_sources)
	cd test && $(plane_build) -ldflags '$(plane_strip)' -o $@ ./infrastructure
	@touch $@

$(PLANE_BIN)/plane-runc: $(wildcard test/infrastructure/runc/*.go)
	cd test && $(plane_build) -ldflags '$(plane_strip)' -o $@ ./infrastructure/runc
	@touch $@

$(PLANE_BIN)/pause: test/infrastructure/pause/main.go
	cd test && $(plane_build) -ldflags '$(plane_strip)' -o $@ ./infrastructure/pause
	@touch $@

# runc wants libseccomp, so it comes from the distribution. Real nodes are
# skipped, with this reason, where it cannot be had.
.PHONY: plane-node-deps
plane-node-deps: ## Install runc for real nodes, where that is possible.
	@if command -v runc >/dev/null; then runc --version | head -n 1; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && apt-get install -qq -y --no-install-recommends runc; } >/dev/null 2>&1 \
			&& runc --version | head -n 1 || echo 'runc: apt-get could not install it, real-node tests will be skipped'; \
	else echo 'runc: not found and not installable here, real-node tests will be skipped'; fi

# HAProxy is no Go module, so it comes from the machine or its distribution.
.PHONY: plane-haproxy
plane-haproxy: $(PLANE_BIN)/haproxy ## Get HAProxy for the tests of load balancers.

$(PLANE_BIN)/haproxy:
	@hack/haproxy.sh $@ || echo 'haproxy: the tests that need it will be skipped'

.PHONY: plane-test
plane-test: plane-binaries plane-node-deps ## Test the local plane itself.
	cd test && PLANE_BIN=$(PLANE_BIN) go test -count=1 -parallel 6 ./plane/... ./infrastructure/...
