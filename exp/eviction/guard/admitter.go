// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

const (
	// Path is the path of the webhook. If the guard creates its certificate, a secret part follows it.
	Path = "/eviction"
	// callTimeout bounds a decision. If the webhook exceeds its timeoutSeconds of 5, the API server evicts the pod. The
	// difference covers the network and a busy machine. It is also much shorter than verdict.QueueTTL.
	callTimeout = 3 * time.Second
	// causeType is the type of the cause in an answer. Cluster API shows the cause.
	causeType metav1.CauseType = "OperatorMovesPod"
)

// An admitter answers admission requests for evictions.
type admitter struct {
	// cached decides without a call to the API server, if it can.
	cached   func(context.Context, eviction.Attempt) (eviction.Response, eviction.CacheAnswer, error)
	queue    decisionQueue
	clock    clock.PassiveClock
	reporter *reporter
}

// Handle implements admission.Handler.
func (a *admitter) Handle(ctx context.Context, req admission.Request) admission.Response {
	w, err := wanted(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	begin := a.clock.Now()
	// The guard answers a request that has arrived even while it shuts down.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := a.decide(ctx, w)
	took := a.clock.Now().Sub(begin)
	switch {
	case errors.Is(err, errBusy): // Overload is not an error: count it, do not log it.
		a.reporter.count(busy, took)
		return failure(err)
	case err != nil:
		a.reporter.count(undecided, took)
		ctrl.LoggerFrom(ctx).Error(err, "Deciding about eviction", "Pod", w.Pod)
		return failure(fmt.Errorf("eviction guard: %w", err)).WithWarnings(warnings(resp, w)...)
	}
	a.reporter.answered(resp, w.DryRun, took)
	return response(resp, w)
}

// decide answers from the cache if it can, otherwise from live reads. It answers 429 if all slots are taken: after the
// webhook timeout the API server would evict the pod.
func (a *admitter) decide(ctx context.Context, w eviction.Attempt) (eviction.Response, error) {
	cached, known, err := a.cached(ctx, w)
	if err != nil || known == eviction.Decided {
		return cached, err
	}
	wait := maxWait
	if known == eviction.WaitWithoutRequest {
		wait = 0
	}
	resp, err := a.queue.evict(ctx, w, wait)
	if known == eviction.WaitWithoutRequest && errors.Is(err, errBusy) {
		return cached, nil
	}
	return resp, err
}

// failure is the answer without a decision. It is 429, so that clients retry. It is 500, which ends kubectl drain, if
// no retry can succeed before the guard's permissions change.
func failure(err error) admission.Response {
	if eviction.Refused(err) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	r := admission.Errored(http.StatusTooManyRequests, err)
	r.Result.Reason = metav1.StatusReasonTooManyRequests
	return r
}

// wanted parses an admission request.
func wanted(req admission.Request) (eviction.Attempt, error) {
	w := eviction.Attempt{By: req.UserInfo.Username, DryRun: ptr.Deref(req.DryRun, false)}
	if len(req.Object.Raw) == 0 {
		return w, fmt.Errorf("the request has no object: an Eviction is wanted")
	}
	var e policyv1.Eviction // policy/v1beta1 has the same fields.
	if err := json.Unmarshal(req.Object.Raw, &e); err != nil {
		return w, fmt.Errorf("reading Eviction: %w", err)
	}
	w.Pod = client.ObjectKey{Namespace: cmp.Or(req.Namespace, e.Namespace), Name: cmp.Or(req.Name, e.Name)}
	if w.Pod.Name == "" || w.Pod.Namespace == "" {
		return w, fmt.Errorf("the Eviction names no pod: metadata.namespace is %q and metadata.name is %q", w.Pod.Namespace, w.Pod.Name)
	}
	if o := e.DeleteOptions; o != nil {
		w.DryRun = w.DryRun || len(o.DryRun) > 0 // kubectl sets the dry run here.
		if o.Preconditions != nil && o.Preconditions.UID != nil {
			w.UID = *o.Preconditions.UID
		}
	}
	return w, nil
}

// response converts a decision to an admission response. It has no retryAfterSeconds: with it, client-go retries within
// the same call, and Cluster API does not reach the other pods.
func response(resp eviction.Response, w eviction.Attempt) admission.Response {
	status := &metav1.Status{Status: metav1.StatusFailure, Message: resp.Message}
	switch resp.Answer {
	case verdict.Wait:
		status.Code, status.Reason = http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests
	case verdict.Gone:
		status.Code, status.Reason = http.StatusNotFound, metav1.StatusReasonNotFound
	case verdict.Allow:
		status = &metav1.Status{Code: http.StatusOK}
	}
	if resp.Cause != "" {
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: causeType, Message: resp.Cause}}}
	}
	if w.DryRun && resp.Answer != verdict.Allow {
		status.Message += " (server dry run)"
	}
	return admission.Response{
		AdmissionResponse: admissionv1.AdmissionResponse{
			Allowed: resp.Answer == verdict.Allow, Result: status, Warnings: warnings(resp, w),
			AuditAnnotations: map[string]string{"verdict": resp.Outcome},
		},
	}
}

// warnings returns the cause and the warnings, one line each. kubectl prints each warning once; it does not print the
// cause.
func warnings(resp eviction.Response, w eviction.Attempt) (lines []string) {
	texts := resp.Warnings
	if resp.Cause != "" {
		texts = slices.Concat([]string{resp.Cause}, texts)
	}
	for _, text := range texts {
		lines = append(lines, clip.To(clip.Line(text), maxWarning))
	}
	if w.DryRun && resp.Answer == verdict.Wait {
		lines = append(lines, "the operator of the pod is not asked in a dry run")
	}
	return lines
}

// maxWarning is a length, in bytes, that the API server never truncates.
const maxWarning = 256
