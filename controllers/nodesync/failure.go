// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/finos/cluster-api-addon-provider-5spot/internal/installation"
)

// manualInstall is the advice to install a part without the manager.
var manualInstall = map[part]string{
	agent: "or install the agent yourself, and start the manager with --agent-install=disabled",
	guard: "or install the guard yourself, and start the manager with --eviction-guard-install=disabled",
}

// runErrors has the errors of one run.
type runErrors struct {
	// install is the error of the installation. nodes has the errors of Nodes, by name.
	install error
	nodes   map[string]error
	// uninstall is the error of the removal. It affects no Node.
	uninstall error
	// guard is the error of the guard. It affects neither the Nodes nor the agent.
	guard error
}

func (t runErrors) err() error {
	errs := []error{t.install, t.uninstall}
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		errs = append(errs, t.nodes[name])
	}
	return errors.Join(errs...)
}

// outcome converts the errors to the result that other controllers read.
func (t runErrors) outcome(elsewhere bool) installation.Outcome {
	o := installation.Outcome{Elsewhere: elsewhere, Failure: failureOf(t.install, agent), Nodes: map[string]installation.Failure{}}
	for name, err := range t.nodes {
		o.Nodes[name] = failureOf(err, agent)
	}
	return o
}

// An objectError is an error about one object of the installation.
type objectError struct {
	object string
	err    error
}

func (e objectError) Error() string { return e.err.Error() }
func (e objectError) Unwrap() error { return e.err }

func failureOf(err error, p part) installation.Failure {
	if err == nil {
		return installation.Failure{}
	}
	return installation.Failure{Class: classOf(err), Text: fmt.Sprintf("%s: %s", err, wayOut(err, p))}
}

// classOf returns a class that is stable while the failure lasts. It has the object and the API server's reason, or
// else the type of the innermost error.
func classOf(err error) string {
	var object objectError
	_ = errors.As(err, &object)
	if code, ok := codeOf(err); ok {
		return fmt.Sprintf("%s: %d %s", object.object, code, apierrors.ReasonForError(err))
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return fmt.Sprintf("%s: %T", object.object, err)
}

func codeOf(err error) (int32, bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return 0, false
	}
	return status.ErrStatus.Code, true
}

// wayOut returns advice how to resolve err, as text for an Event.
func wayOut(err error, p part) string {
	code, _ := codeOf(err)
	switch {
	case errors.Is(err, errForeign):
		return "delete it, " + manualInstall[p]
	case errors.Is(err, errContested):
		return "stop the program that changes it, " + manualInstall[p]
	case meta.IsNoMatchError(err), code == http.StatusUnsupportedMediaType:
		return "the workload cluster needs Kubernetes 1.30 or newer, with server-side apply and ValidatingAdmissionPolicy; use one that has them, " + manualInstall[p]
	case code == http.StatusNotFound:
		return "its Namespace is missing: install the " + string(p) + ", which contains it"
	case code == http.StatusForbidden, code == http.StatusUnauthorized:
		return "allow it to the user of the Cluster's kubeconfig, " + manualInstall[p]
	default:
		return "it is tried again"
	}
}
