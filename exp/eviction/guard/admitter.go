// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction"
	"github.com/finos/cluster-api-addon-provider-5spot/exp/eviction/verdict"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

const (
	// Path is where the API server asks. Where the guard makes its own certificate, a part that nobody guesses
	// follows.
	Path = "/eviction"
	// callTimeout bounds one answer. After the webhook's timeoutSeconds, which is 5, the API server evicts the pod:
	// the rest is for the way there and back on a busy machine. It is much less than verdict.Fresh, too.
	callTimeout = 3 * time.Second
	// causeType is that of the cause in an answer, which Cluster API shows.
	causeType metav1.CauseType = "OperatorMovesPod"
)

// An admitter answers the API server.
type admitter struct {
	// cached decides without a call to the API server, if it can.
	cached   func(context.Context, eviction.Wanted) (eviction.Response, eviction.CacheAnswer, error)
	queue    queue
	clock    clock.PassiveClock
	reporter *reporter
}

// what is in the body of an eviction. It is the same in policy/v1 and policy/v1beta1.
type evicting struct {
	metav1.ObjectMeta `json:"metadata"`

	DeleteOptions *metav1.DeleteOptions `json:"deleteOptions"`
}

// Handle implements admission.Handler.
func (a *admitter) Handle(ctx context.Context, req admission.Request) admission.Response {
	w, err := wanted(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	begin := a.clock.Now()
	// Whoever asks before the guard is ended gets an answer all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	resp, err := a.decide(ctx, w)
	took := a.clock.Now().Sub(begin)
	switch {
	case errors.Is(err, errBusy): // Overload is not an error: count it, do not log it.
		a.reporter.failed(busy, took)
		return failure(err)
	case err != nil:
		a.reporter.failed(undecided, took)
		ctrl.LoggerFrom(ctx).Error(err, "Deciding about eviction", "Pod", w.Pod)
		return failure(fmt.Errorf("eviction guard: %w", err)).WithWarnings(warnings(resp, w)...)
	}
	a.reporter.answered(resp, w.DryRun, took)
	return response(resp, w)
}

// decide answers from the cache if it can, otherwise from live reads. If all 8 slots are taken it answers 429: after the webhook
// timeout the API server would evict the pod.
func (a *admitter) decide(ctx context.Context, w eviction.Wanted) (eviction.Response, error) {
	cached, known, err := a.cached(ctx, w)
	if err != nil || known == eviction.Decided {
		return cached, err
	}
	wait := longestWait
	if known == eviction.Unrecorded {
		wait = 0
	}
	resp, err := a.queue.evict(ctx, w, wait)
	if known == eviction.Unrecorded && errors.Is(err, errBusy) {
		return cached, nil
	}
	return resp, err
}

// failure is for an eviction about which nobody knows. It is said to try again, unless somebody has to do
// something first: an error ends kubectl's drain.
func failure(err error) admission.Response {
	if eviction.Refused(err) {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	r := admission.Errored(http.StatusTooManyRequests, err)
	r.Result.Reason = metav1.StatusReasonTooManyRequests
	return r
}

// wanted is what somebody wants.
func wanted(req admission.Request) (eviction.Wanted, error) {
	w := eviction.Wanted{Pod: client.ObjectKey{Namespace: req.Namespace, Name: req.Name}, By: req.UserInfo.Username}
	w.DryRun = req.DryRun != nil && *req.DryRun
	if len(req.Object.Raw) == 0 {
		return w, fmt.Errorf("the request has no object: an Eviction is wanted")
	}
	var e evicting
	if err := json.Unmarshal(req.Object.Raw, &e); err != nil {
		return w, fmt.Errorf("reading Eviction: %w", err)
	}
	if w.Pod.Name == "" {
		w.Pod.Name = e.Name
	}
	if w.Pod.Namespace == "" {
		w.Pod.Namespace = e.Namespace
	}
	if w.Pod.Name == "" || w.Pod.Namespace == "" {
		return w, fmt.Errorf("the Eviction names no pod: metadata.namespace is %q and metadata.name is %q", w.Pod.Namespace, w.Pod.Name)
	}
	if o := e.DeleteOptions; o != nil {
		w.DryRun = w.DryRun || len(o.DryRun) > 0 // kubectl says it here.
		if o.Preconditions != nil && o.Preconditions.UID != nil {
			w.UID = *o.Preconditions.UID
		}
	}
	return w, nil
}

// response says it in the API server's words. There is no retryAfterSeconds: a client that sees one
// tries again within the same call, and keeps Cluster API from the other pods.
func response(resp eviction.Response, w eviction.Wanted) admission.Response {
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

// warnings are for whoever reads them: kubectl shows each once, in one line, where it does not show the cause.
func warnings(resp eviction.Response, w eviction.Wanted) (lines []string) {
	texts := resp.Warnings
	if resp.Cause != "" {
		texts = slices.Concat([]string{resp.Cause}, texts)
	}
	for _, text := range texts {
		lines = append(lines, clip.To(clip.Line(text), longestWarning))
	}
	if w.DryRun && resp.Answer == verdict.Wait {
		lines = append(lines, "the operator of the pod is not asked in a dry run")
	}
	return lines
}

// longestWarning is what the API server passes on for sure, in bytes.
const longestWarning = 256
