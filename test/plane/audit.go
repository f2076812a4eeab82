// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"
)

// writeAuditPolicy writes a policy that records the metadata of every request except leases and health checks. For the
// groups in bodies it records requests and responses of writes.
func writeAuditPolicy(path string, bodies []string) error {
	policy := auditv1.Policy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "audit.k8s.io/v1", Kind: "Policy"},
		OmitStages: []auditv1.Stage{auditv1.StageRequestReceived},
		Rules: []auditv1.PolicyRule{
			{Level: auditv1.LevelNone, Resources: []auditv1.GroupResources{{Group: "coordination.k8s.io"}}},
			{Level: auditv1.LevelNone, NonResourceURLs: []string{"/healthz*", "/livez*", "/readyz*", "/openapi*", "/api*", "/version"}},
		},
	}
	if len(bodies) > 0 {
		rule := auditv1.PolicyRule{Level: auditv1.LevelRequestResponse, Verbs: []string{"create", "update", "patch", "delete", "deletecollection"}}
		for _, g := range bodies {
			rule.Resources = append(rule.Resources, auditv1.GroupResources{Group: g})
		}
		policy.Rules = append(policy.Rules, rule)
	}
	policy.Rules = append(policy.Rules, auditv1.PolicyRule{Level: auditv1.LevelMetadata})
	b, err := yaml.Marshal(policy)
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func (c *Cluster) auditPath() string { return c.path("audit.log") }

// AuditLogs returns the paths of the audit logs of all its clusters, by cluster name.
func (p *Plane) AuditLogs() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	paths := map[string]string{p.Management.Name: p.Management.auditPath()}
	for _, c := range p.clusters {
		paths[c.Name] = c.auditPath()
	}
	return paths
}

// AuditEvents returns the events that the API server has recorded so far, in the order in which it finished the
// requests. It records a request before it sends the response. Events are parsed only once, because the log of a long
// suite is large. Do not change the events.
func (c *Cluster) AuditEvents() ([]auditv1.Event, error) {
	events, err := c.audit.read(c.auditPath())
	if err != nil {
		return nil, fmt.Errorf("reading audit log: %w", err)
	}
	return events, nil
}

// auditLog caches the parsed events of an audit log. It is safe for concurrent use.
type auditLog struct {
	mu     sync.Mutex
	size   int64 // in bytes, of the parsed events
	events []auditv1.Event
}

// read returns all events of the log. It parses only new ones.
func (l *auditLog) read(path string) ([]auditv1.Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, err := os.Open(path) //nolint:gosec // a file of the plane
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(l.size, io.SeekStart); err != nil {
		return nil, err
	}
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return slices.Clip(l.events), nil // a line without an end is still being written
		}
		if err != nil {
			return nil, err
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		l.size += int64(len(line))
		l.events = append(l.events, e)
	}
}
