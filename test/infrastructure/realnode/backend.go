// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/controllers"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/image"
	"github.com/finos/cluster-api-addon-provider-5spot/test/infrastructure/remote"
)

// Backend creates real nodes.
type Backend struct {
	// Bin has the programs. Dir has image archives (images/), a link to the directory of every node
	// (nodes/<namespace>-<name>), and the logs of their programs (logs/<namespace>-<name>-<program>.log).
	Bin, Dir string
	// Kubeconfigs connect to the workload clusters.
	Kubeconfigs *remote.Kubeconfigs

	mu    sync.Mutex
	nodes map[string]*node
	// failures are the errors with which the last node of a Host ended.
	failures map[string]error
}

// node is a started warden.
type node struct {
	dir   string
	stdin io.Closer
	out   *bytes.Buffer
	ended chan struct{}
}

func (n *node) running() bool {
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// Ensure implements controllers.Backend.
func (b *Backend) Ensure(ctx context.Context, h controllers.Host) (string, error) {
	if err := Supported(b.Bin); err != nil {
		return "", err
	}
	addr, err := address()
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n, ok := b.nodes[h.ID]
	switch {
	case !ok:
		if err := b.start(ctx, h, addr); err != nil {
			return "", fmt.Errorf("starting node %s: %w", h.NodeName, err)
		}
		return "", b.notYet(h, "starting")
	case !n.running():
		delete(b.nodes, h.ID)
		err := fmt.Errorf("node %s ended: %s", h.NodeName, strings.TrimSpace(n.out.String()))
		b.failures[h.ID] = err
		return "", err
	}
	if _, err := os.Stat(filepath.Join(n.dir, readyFile)); err != nil {
		return "", b.notYet(h, "waiting for the kubelet")
	}
	return addr.String(), nil
}

// notYet reports what a Host waits for, with the error of its last attempt. The backend restarts a node repeatedly, so
// a single read would rarely see the error.
func (b *Backend) notYet(h controllers.Host, what string) error {
	if before, ok := b.failures[h.ID]; ok {
		return fmt.Errorf("%w: %s again: %w", controllers.ErrNotYet, what, before)
	}
	return fmt.Errorf("%w: %s", controllers.ErrNotYet, what)
}

// dirPattern matches the directories of nodes only: see sweep.
const dirPattern = "plane-rn-*"

func (b *Backend) start(ctx context.Context, h controllers.Host, addr net.IP) error {
	if err := sweep(); err != nil {
		klog.ErrorS(err, "Removing what nodes left whose warden was killed")
	}
	dir, err := os.MkdirTemp("", dirPattern)
	if err != nil {
		return err
	}
	n, err := b.prepareAndLaunch(ctx, dir, h, addr)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if b.nodes == nil {
		b.nodes, b.failures = map[string]*node{}, map[string]error{}
	}
	b.nodes[h.ID] = n
	return b.link(h.ID, dir)
}

func (b *Backend) prepareAndLaunch(ctx context.Context, dir string, h controllers.Host, addr net.IP) (*node, error) {
	locked, err := lock(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = locked.Close() }() // the warden holds it
	s, err := b.spec(dir, h, addr)
	if err != nil {
		return nil, err
	}
	cfg, err := b.Kubeconfigs.Config(ctx, h.Cluster)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.path("ca.crt"), cfg.CAData, 0o600); err != nil {
		return nil, err
	}
	if err := s.writeCredentials(ctx, cfg); err != nil {
		return nil, err
	}
	if err := s.write(); err != nil {
		return nil, err
	}
	return launch(dir, locked)
}

func (b *Backend) spec(dir string, h controllers.Host, addr net.IP) (Spec, error) {
	ports, err := freePorts(2)
	if err != nil {
		return Spec{}, err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return Spec{}, err
	}
	images := filepath.Join(b.Dir, "images")
	if err := b.ensurePause(images); err != nil {
		return Spec{}, err
	}
	mounts, err := readCgroupMounts()
	if err != nil {
		return Spec{}, err
	}
	if h.Cgroups == "" {
		h.Cgroups = mounts.version()
	}
	if err := mounts.lacks(h.Cgroups); err != nil {
		return Spec{}, err
	}
	logs := filepath.Join(b.Dir, "logs")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		return Spec{}, err
	}
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(dir))
	return Spec{
		Dir: dir, Bin: b.Bin, Images: images, NodeName: h.NodeName, ProviderID: h.ProviderID, Address: addr.String(),
		Cgroups: h.Cgroups, Unified: mounts.unified, Log: filepath.Join(logs, fileName(h.ID)),
		Subnet:      fmt.Sprintf("10.%d.%d", 200+sum.Sum32()%50, sum.Sum32()>>8&0xff),
		KubeletPort: ports[0], HealthPort: ports[1], Runc: runc,
	}, nil
}

func (b *Backend) ensurePause(dir string) error {
	file := filepath.Join(dir, "pause.tar")
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := image.Write(&buf, pauseImage, filepath.Join(b.Bin, "pause")); err != nil {
		return err
	}
	return os.WriteFile(file, buf.Bytes(), 0o600)
}

// fileName is the name of a Host's files.
func fileName(id string) string { return strings.ReplaceAll(id, "/", "-") }

func (b *Backend) link(id, dir string) error {
	name := filepath.Join(b.Dir, "nodes", fileName(id))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	_ = os.Remove(name)
	return os.Symlink(dir, name)
}

// Remove implements controllers.Backend.
func (b *Backend) Remove(ctx context.Context, h controllers.Host, deleteNode bool) error {
	b.mu.Lock()
	n, ok := b.nodes[h.ID]
	b.mu.Unlock()
	if ok {
		_ = n.stdin.Close()
		if n.running() {
			return fmt.Errorf("%w: stopping", controllers.ErrNotYet)
		}
		b.mu.Lock()
		delete(b.nodes, h.ID)
		delete(b.failures, h.ID)
		b.mu.Unlock()
		_ = os.Remove(filepath.Join(b.Dir, "nodes", fileName(h.ID)))
		if err := removeAbandoned(n.dir); err != nil {
			return err
		}
	}
	if !deleteNode {
		return nil
	}
	cfg, err := b.Kubeconfigs.Config(ctx, h.Cluster)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := client.CoreV1().Nodes().Delete(ctx, h.NodeName, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", h.NodeName, err)
	}
	return nil
}

// Forget implements controllers.Backend. A real node cannot be handed over: it runs here until this program ends.
func (*Backend) Forget(controllers.Host) {}

// Close removes all nodes and waits for the removal.
func (b *Backend) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.nodes {
		_ = n.stdin.Close()
	}
	for _, n := range b.nodes {
		<-n.ended
	}
}

func freePorts(n int) ([]int, error) {
	out := make([]int, n)
	for i := range out {
		l, err := net.Listen("tcp", ":0") //nolint:gosec,noctx // a kubelet listens on all addresses
		if err != nil {
			return nil, err
		}
		// Held until all ports are chosen, so that they differ.
		defer func() { _ = l.Close() }()
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			out[i] = a.Port
		}
	}
	return out, nil
}
