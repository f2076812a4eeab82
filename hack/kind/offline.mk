# kind, its nodes and every image from Go modules and Debian packages, for machines that
# reach no registry of containers. By hand, as root: see docs/local-plane.md.
#
# Versions live in the go.mod files below hack/ and in test/kind, but for Debian's.

KIND_DEBIAN ?= trixie
KIND_MIRROR ?= http://deb.debian.org/debian

KIND_OFFLINE := $(CURDIR)/out/kind-offline
KIND_CONTEXT := $(KIND_OFFLINE)/context

# What goes into images, by where it comes from.
KIND_OF_PLANE   := kubeplane pause containerd containerd-shim-runc-v2 ctr ptp host-local loopback \
	capi-core capi-kubeadm-bootstrap capi-kubeadm-control-plane
KIND_OF_MODULES := kubeadm kube-proxy capd coredns crictl
KIND_OWN        := network certificates

kind_binaries = $(1:%=$(KIND_CONTEXT)/bin/%)

kind_path_kubeadm    := k8s.io/kubernetes/cmd/kubeadm
kind_path_kube-proxy := k8s.io/kubernetes/cmd/kube-proxy
kind_path_capd       := sigs.k8s.io/cluster-api/test/infrastructure/docker
kind_path_coredns    := ./coredns
kind_path_crictl     := sigs.k8s.io/cri-tools/cmd/crictl

# A copy that was cut off must not count as made.
.DELETE_ON_ERROR:

.PHONY: test-e2e-kind-offline
test-e2e-kind-offline: ## Run the specs on kind, as root, where no registry can be reached.
	@hack/kind/offline.sh check $(KIND_OFFLINE)
	@$(MAKE) --no-print-directory kind-offline
	@$(MAKE) --no-print-directory release-manifests image-binaries IMAGE=$(DEV_IMAGE) OUT=$(CURDIR)/out/kind PLATFORMS=linux/$$(go env GOARCH)
	@hack/kind/offline.sh run $(KIND_OFFLINE) $(E2E_ARGS)

.PHONY: kind-offline
kind-offline: plane-binaries $(KIND_OFFLINE)/machine/.made $(KIND_CONTEXT)/debian.tar \
	$(call kind_binaries,$(KIND_OF_PLANE) runc $(KIND_OF_MODULES) $(KIND_OWN)) \
	$(KIND_OFFLINE)/test $(KIND_CONTEXT)/.sources
	@mkdir -p $(KIND_OFFLINE)/manifests && cp -u $(PLANE_BIN)/manifests/*.yaml $(KIND_OFFLINE)/manifests/

$(call kind_binaries,$(filter-out ptp host-local loopback,$(KIND_OF_PLANE))): $(KIND_CONTEXT)/bin/%: $(PLANE_BIN)/%
	@mkdir -p $(@D) && cp $< $@

$(call kind_binaries,ptp host-local loopback): $(KIND_CONTEXT)/bin/%: $(PLANE_BIN)/cni/%
	@mkdir -p $(@D) && cp $< $@

# It stands before the runc of the distribution, under its name.
$(call kind_binaries,runc): $(PLANE_BIN)/plane-runc
	@mkdir -p $(@D) && cp $< $@

# A program of a module of the plane that the plane does not run. Its sums go to a copy of
# go.sum: what the plane is built by stays as it is.
define kind_beside
	@mkdir -p $(@D) && cp hack/$(1)/go.mod $(KIND_OFFLINE)/$*.mod && cp hack/$(1)/go.sum $(KIND_OFFLINE)/$*.sum
	cd hack/$(1) && $(plane_build) -mod=mod -modfile=$(KIND_OFFLINE)/$*.mod -ldflags '$(plane_strip) $(2)' -o $@ $(kind_path_$*)
	@touch $@
endef

$(call kind_binaries,kubeadm kube-proxy): $(KIND_CONTEXT)/bin/%: hack/kube/go.mod hack/kube/go.sum
	$(call kind_beside,kube,$(plane_kube_flags))

# The plane's capi-dev makes no containers, and this does.
$(call kind_binaries,capd): $(KIND_CONTEXT)/bin/%: hack/capi/go.mod hack/capi/go.sum
	$(call kind_beside,capi,$(call plane_capi_flags,$(PLANE_DEV_VERSION)))

$(call kind_binaries,coredns crictl): $(KIND_CONTEXT)/bin/%: hack/kind/images/go.mod hack/kind/images/go.sum $(wildcard hack/kind/images/*/*.go)
	cd hack/kind/images && $(plane_build) -ldflags '$(plane_strip)' -o $@ $(kind_path_$*)
	@touch $@

$(call kind_binaries,$(KIND_OWN)): $(KIND_CONTEXT)/bin/%: hack/kind/go.mod hack/kind/go.sum $(wildcard hack/kind/*/*.go)
	cd hack/kind && $(plane_build) -ldflags '$(plane_strip)' -o $@ ./$*
	@touch $@

# The specs, as a program that runs where there is no Go. Go knows when there is nothing to do.
.PHONY: $(KIND_OFFLINE)/test
$(KIND_OFFLINE)/test:
	cd test/kind && CGO_ENABLED=0 go test -c -trimpath -o $@ .

# Of kind and of Cluster API's tests, what is no Go. Modules are read-only.
$(KIND_CONTEXT)/.sources: test/kind/go.mod hack/kind/certificates.yaml | $(KIND_OFFLINE)/test
	@rm -rf $(@D)/kind && mkdir -p $(@D)/kind
	cp -RT --no-preserve=mode $$(cd test/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/kind)/images/base/files $(@D)/kind
	cp --no-preserve=mode $$(cd test/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api/test)/e2e/data/cni/kindnet/kindnet.yaml $(@D)/cni.yaml
	cp hack/kind/certificates.yaml $(@D)/
	sed -n 's|.*DefaultImageTag = "\(.*\)"|docker.io/kindest/haproxy:\1|p' \
		$$(cd test/kind && go list -m -f '{{.Dir}}' sigs.k8s.io/cluster-api/test)/infrastructure/docker/internal/loadbalancer/const.go >$(@D)/haproxy.image
	@touch $@

$(KIND_OFFLINE)/machine/.made: hack/kind/machine.packages
	hack/kind/debian.sh $(KIND_DEBIAN) $(KIND_MIRROR) $< $(@D)
	@touch $@

$(KIND_CONTEXT)/debian.tar: hack/kind/node.packages
	hack/kind/debian.sh $(KIND_DEBIAN) $(KIND_MIRROR) $< $(KIND_OFFLINE)/debian
	@mkdir -p $(@D) && tar -C $(KIND_OFFLINE)/debian --numeric-owner --exclude='./dev/*' -cf $@.tmp . && mv $@.tmp $@ && rm -rf $(KIND_OFFLINE)/debian
