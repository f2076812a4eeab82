// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	classictypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// throttled recognizes the errors by which AWS limits the request rate.
var throttled = retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}

// failure is an error with a stable text. The SDK's text has the ID of each request, so that a lasting error would
// change the status after each call.
type failure struct {
	text  string
	cause error
}

func (f failure) Error() string { return f.text }
func (f failure) Unwrap() error { return f.cause }

// explain returns an error with the action, the pool, the reason, and what to do.
func explain(action, pool string, err error) error {
	what := action
	if pool != "" {
		what += " of " + pool
	}
	if isThrottled(err) {
		return failure{what + ": " + balancer.ErrThrottled.Error(), errors.Join(balancer.ErrThrottled, err)}
	}
	return failure{what + ": " + reason(action, err), err}
}

// missing returns the error for a name in a spec that does not exist in AWS.
func missing(field, kind, name, region string) error {
	return failure{text: fmt.Sprintf("%s: %s %q does not exist in %s: correct it, or take it off the list", field, kind, name, region)}
}

// noIdentity returns the error for a Node that no target can match.
func noIdentity(node balancer.Node, has string) error {
	return fmt.Errorf("node %q has %s: %w", node.Name, has, balancer.ErrNoIdentity)
}

// reason returns why an action failed. The text is the same each time.
func reason(action string, err error) string {
	if ours, ok := errors.AsType[failure](err); ok {
		return ours.text
	}
	if long, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return fmt.Sprintf("answer is longer than %d MB", long.Limit>>20)
	}
	if text := credentials(err); text != "" {
		return text
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return clip.Note(api.ErrorCode()+": "+api.ErrorMessage()) + remedy(action, api.ErrorCode())
	}
	timedOut, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "the call was canceled"
	case errors.Is(err, context.DeadlineExceeded), isNet && timedOut.Timeout():
		return "no answer in time"
	}
	if _, sent := errors.AsType[*smithyhttp.RequestSendError](err); !sent {
		return sendFailure(err)
	}
	return connection(err)
}

// connection returns the text for a network error.
func connection(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the address of host %s cannot be resolved: check region and endpoint", dns.Name)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error() + endpoint(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate is not trusted" + endpoint(err)
	}
	return "AWS cannot be reached" + endpoint(err)
}

// endpoint returns the scheme and host of the failed request.
func endpoint(err error) string {
	request, ok := errors.AsType[*url.Error](err)
	if !ok {
		return ""
	}
	u, err := url.Parse(request.URL)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" at %s://%s: check region and endpoint", u.Scheme, u.Host)
}

// credentials returns a text if the request could not be signed, because a call for credentials failed, such as a call
// of STS or of the metadata service. Otherwise, it is empty.
func credentials(err error) string {
	outer, ok := errors.AsType[*smithy.OperationError](err)
	if !ok {
		return ""
	}
	inner, ok := errors.AsType[*smithy.OperationError](outer.Err)
	if !ok {
		return ""
	}
	return fmt.Sprintf("no credentials: %s of %s failed: give the manager an IAM role, or credentials in its environment", inner.OperationName, inner.ServiceID)
}

// sendFailure returns why the request was not sent, or why its response could not be parsed.
func sendFailure(err error) string {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.HTTPStatusCode() != 0 {
		return fmt.Sprintf("an answer with status %d that cannot be read", response.HTTPStatusCode())
	}
	if operation, ok := errors.AsType[*smithy.OperationError](err); ok {
		err = operation.Err
	}
	return "request cannot be made: " + clip.Note(err.Error())
}

// remedy returns what to do about an error code of AWS.
func remedy(action, code string) string {
	switch code {
	case "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedAccess":
		return ": allow elasticloadbalancing:" + action + " in the IAM policy of the manager"
	case "ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken":
		return ": check the manager's credentials"
	default:
		return ""
	}
}

// isThrottled reports whether AWS limits the request rate.
func isThrottled(err error) bool { return throttled.IsErrorThrottle(err) == aws.TrueTernary }

// stopsCalls reports whether the next request would fail as well: AWS limits the request rate, or the context has
// ended.
func stopsCalls(ctx context.Context, err error) bool {
	return errors.Is(err, balancer.ErrThrottled) || ctx.Err() != nil
}

// isGone reports whether the error means that the target group or load balancer does not exist.
func isGone(err error) bool {
	_, group := errors.AsType[*types.TargetGroupNotFoundException](err)
	_, loadBalancer := errors.AsType[*classictypes.AccessPointNotFoundException](err)
	return group || loadBalancer
}
