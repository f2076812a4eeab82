// SPDX-License-Identifier: Apache-2.0

package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/finos/cluster-api-addon-provider-5spot/api/reclaim"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/finos/cluster-api-addon-provider-5spot/test/plane"
)

// agentUser is the agent's name in the audit log of the workload cluster.
const agentUser = "reclaim-agent"

// AgentOptions describes one agent.
type AgentOptions struct {
	// Node is the name of its Node.
	Node string
	// Patterns are the killIfCommands of a ScheduledMachine.
	Patterns []string
	// MachineIDPath is the file with the host's machine ID.
	MachineIDPath string
	// Args are appended to its command line.
	Args []string
}

// StartAgent runs the reclaim agent on this machine for a Node of the workload cluster, with only the permissions that
// it needs. It returns when the agent watches processes. The process replaces the pod that the controller installs.
// StartAgent writes the agent's ConfigMap, which the controller does not change.
func (s *System) StartAgent(ctx context.Context, w *plane.Workload, o AgentOptions) (*plane.Process, error) {
	if err := s.prepareAgent(ctx, w, o); err != nil {
		return nil, fmt.Errorf("preparing reclaim agent: %w", err)
	}
	user, err := w.User(agentUser)
	if err != nil {
		return nil, err
	}
	ports, err := s.Ports(1)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	args := append([]string{
		"--node-name=" + o.Node, "--kubeconfig=" + user.Kubeconfig,
		"--machine-id-path=" + o.MachineIDPath, "--metrics-address=" + address,
	}, o.Args...)
	agent := s.NewProcess(agentUser+"-"+o.Node, s.Program("reclaim-agent"), args, nil, func(ctx context.Context) error {
		return healthy(ctx, "http://"+address+"/healthz")
	})
	if err := agent.Start(ctx); err != nil {
		return nil, err
	}
	return agent, Armed(ctx, agent)
}

// Armed waits until the agent watches processes.
func Armed(ctx context.Context, agent *plane.Process) error {
	return plane.Until(ctx, func(context.Context) error {
		if !strings.Contains(agent.LogTail(50), `msg="Watching processes"`) {
			return errors.New("the reclaim agent does not watch processes")
		}
		return nil
	})
}

func (s *System) prepareAgent(ctx context.Context, w *plane.Workload, o AgentOptions) error {
	if err := w.EnsureNamespace(ctx, reclaim.Namespace); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: agentUser}
	inNamespace := metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: agentUser}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: agentUser}}
	for _, obj := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: agentUser}, Subjects: subjects},
		&rbacv1.Role{ObjectMeta: inNamespace, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}},
		&rbacv1.RoleBinding{ObjectMeta: inNamespace, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: agentUser}, Subjects: subjects},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: reclaim.Namespace, Name: reclaim.ConfigMapName(o.Node)},
			Data:       map[string]string{reclaim.ConfigMapKey: reclaim.ConfigFor(o.Patterns).Text()},
		},
	} {
		if err := w.Client.Create(ctx, obj); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func healthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	return nil
}
