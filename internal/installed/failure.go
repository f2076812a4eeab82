// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// A Part is one of the two installations, named as in Events.
type Part string

// The parts. Both contain the Namespace.
const (
	Agent Part = "reclaim agent"
	Guard Part = "eviction guard"
)

// manualInstall is the advice to install a part without the manager.
var manualInstall = map[Part]string{
	Agent: "or install the agent yourself, and start the manager with --agent-install=disabled",
	Guard: "or install the guard yourself, and start the manager with --eviction-guard-install=disabled",
}

// ErrContested reports an object that another program changes each time it is restored.
var ErrContested = errors.New("is changed again each time it is restored")

// An ObjectError is an error about one object of the installation.
type ObjectError struct {
	Kind string
	Err  error
}

// Error implements error.
func (e ObjectError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e ObjectError) Unwrap() error { return e.Err }

// A Failure is an error for people. The zero Failure means that there was none.
type Failure struct {
	// Class identifies the kind of failure.
	Class string
	// Text describes the failure and how to resolve it.
	Text string
}

// FailureOf returns the Failure of a part for err. A failure of the same class as the last one retains its text:
// details such as a time or a port may differ on each try.
func FailureOf(err error, p Part, last Failure) Failure {
	if err == nil {
		return Failure{}
	}
	f := Failure{Class: classOf(err), Text: Text(err, p)}
	if f.Class == last.Class {
		return last
	}
	return f
}

// Text describes err and how to resolve it.
func Text(err error, p Part) string { return fmt.Sprintf("%s: %s", err, wayOut(err, p)) }

// classOf returns a class that is stable while the failure lasts. It has the object and the API server's reason, or
// else the type of the innermost error.
func classOf(err error) string {
	var object ObjectError
	_ = errors.As(err, &object)
	if code, ok := codeOf(err); ok {
		return fmt.Sprintf("%s: %d %s", object.Kind, code, apierrors.ReasonForError(err))
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return fmt.Sprintf("%s: %T", object.Kind, err)
}

func codeOf(err error) (int32, bool) {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return 0, false
	}
	return status.ErrStatus.Code, true
}

// wayOut returns advice how to resolve err, as text for an Event.
func wayOut(err error, p Part) string {
	code, _ := codeOf(err)
	switch {
	case errors.Is(err, ErrForeign):
		return "delete it, " + manualInstall[p]
	case errors.Is(err, ErrContested):
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
