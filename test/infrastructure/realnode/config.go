// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	infrav1 "github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/api/infrastructure/v1beta1"
)

// A Spec is the configuration of a warden. It is a file in Dir.
type Spec struct {
	// Dir is short: paths of sockets below it are limited to 108 bytes.
	Dir string
	// Bin has the programs, Images the archives to import.
	Bin, Images string
	// NodeName, ProviderID and Address belong to the Node.
	NodeName, ProviderID, Address string
	// Cgroups is the version of control groups that the node sees. Unified is the mount point of version 2 on this
	// machine.
	Cgroups infrav1.CgroupVersion
	Unified string
	// Log is the prefix of the paths of its programs' logs, which outlive it.
	Log string
	// Subnet is the range of its pods' addresses, a /24 without its last byte.
	Subnet string
	// KubeletPort and HealthPort are free ports.
	KubeletPort, HealthPort int
	// Runc is the path of runc.
	Runc string
}

// specFile is written when the directory is locked. See sweep.
const specFile = "spec.json"

// containerdSocket is below Dir.
const containerdSocket = "containerd.sock"

// pauseImage is the sandbox of every pod.
const pauseImage = "plane.local/pause:1"

const containerdConfig = `version = 3
root = "{{.Dir}}/containerd/root"
state = "{{.Dir}}/containerd/state"
oom_score = 0
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing", "io.containerd.internal.v1.opt"]
[grpc]
address = "{{.Dir}}/containerd.sock"
[ttrpc]
address = "{{.Dir}}/containerd.ttrpc"
[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "` + pauseImage + `"
[plugins."io.containerd.cri.v1.runtime"]
# Virtual machines do without CAP_SYS_RESOURCE now and then.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{{.Bin}}/cni"]
conf_dir = "{{.Dir}}/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{{.Runtime}}"
SystemdCgroup = false
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
port: {{.KubeletPort}}
healthzBindAddress: 127.0.0.1
healthzPort: {{.HealthPort}}
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: {{.Dir}}/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: {{.CgroupRoot}}
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
resolvConf: ""
containerRuntimeEndpoint: unix://{{.Dir}}/containerd.sock
podLogsDir: {{.Dir}}/pods
volumePluginDir: {{.Dir}}/volumeplugins
providerID: {{.ProviderID}}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
nodeStatusUpdateFrequency: 5s
`

const networkConfig = `{"cniVersion": "1.0.0", "name": "plane", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {
"type": "host-local", "dataDir": "{{.Dir}}/ipam", "ranges": [[{"subnet": "{{.Subnet}}.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// write stores the configuration of all programs in Dir.
func (s Spec) write() error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	files := map[string]string{"containerd.toml": containerdConfig, "kubelet.yaml": kubeletConfig, "cni/plane.conflist": networkConfig}
	for name, text := range files {
		var b bytes.Buffer
		if err := template.Must(template.New(name).Parse(text)).Execute(&b, s); err != nil {
			return fmt.Errorf("rendering %s: %w", name, err)
		}
		if err := os.MkdirAll(filepath.Dir(s.path(name)), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(s.path(name), b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(s.path(specFile), raw, 0o600)
}

func readSpec(dir string) (Spec, error) {
	var s Spec
	raw, err := os.ReadFile(filepath.Join(dir, specFile)) //nolint:gosec // our own file
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(raw, &s)
}

// CgroupRoot is the parent of its pods' control groups, as the node sees it.
func (s Spec) CgroupRoot() string {
	if s.Cgroups == infrav1.CgroupV2 {
		return "/"
	}
	return "/" + Group(s.Dir)
}

// Runtime is the path that containerd uses as runc.
func (s Spec) Runtime() string {
	if s.Cgroups == infrav1.CgroupV2 {
		return filepath.Join(s.Bin, "plane-runc")
	}
	return s.Runc
}

func (s Spec) log(program string) string { return s.Log + "-" + program + ".log" }

// logTail is the end of a program's log, and the path of the log.
func (s Spec) logTail(program string) string {
	const most = 4 << 10 // for a condition, which people read
	text, err := os.ReadFile(s.log(program))
	if err != nil {
		return err.Error()
	}
	if cut := len(text) - most; cut > 0 {
		text = text[cut:]
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	return fmt.Sprintf("the end of %s:\n%s", s.log(program), text)
}

func (s Spec) path(elem string) string { return filepath.Join(s.Dir, elem) }
