// SPDX-License-Identifier: Apache-2.0

package elb

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/finos/cluster-api-addon-provider-5spot/exp/detach/balancer"
	"github.com/finos/cluster-api-addon-provider-5spot/internal/clip"
)

// throttled are the errors of somebody who asked too often.
var throttled = retry.ThrottleErrorCode{Codes: retry.DefaultThrottleErrorCodes}

// failure is an error with a text of ours. That of the SDK has the ID of each request, and
// what people read of a failure that lasts would be written again with every call.
type failure struct {
	text  string
	cause error
}

func (f failure) Error() string { return f.text }
func (f failure) Unwrap() error { return f.cause }

// explain says which action failed on what, why, and what helps.
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

// missing is the error of a name in a spec that nothing of AWS has.
func missing(field, kind, name, region string) error {
	return failure{text: fmt.Sprintf("%s: %s %q does not exist in %s: correct it, or take it off the list", field, kind, name, region)}
}

// nameless is the error of a Node that no target can be, as far as is known.
func nameless(node balancer.Node, has string) error {
	return fmt.Errorf("node %q has %s: %w", node.Name, has, balancer.ErrNameless)
}

// reason says why an action failed, in the same words each time.
func reason(action string, err error) string {
	if ours, ok := errors.AsType[failure](err); ok {
		return ours.text
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
		return "nobody waits for the answer any more"
	case errors.Is(err, context.DeadlineExceeded), isNet && timedOut.Timeout():
		return "no answer in time"
	}
	if _, sent := errors.AsType[*smithyhttp.RequestSendError](err); !sent {
		return unsent(err)
	}
	return connection(err)
}

// connection says what the network reports.
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

// endpoint says whom a request was for.
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

// credentials says that there was nothing to sign the request with: what gives out
// credentials, such as STS or the metadata service, was asked on the way and failed.
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

// unsent says why there was no request, or why nothing can be made of its answer.
func unsent(err error) string {
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.HTTPStatusCode() != 0 {
		return fmt.Sprintf("an answer with status %d that cannot be read", response.HTTPStatusCode())
	}
	if operation, ok := errors.AsType[*smithy.OperationError](err); ok {
		err = operation.Err
	}
	return "request cannot be made: " + clip.Note(err.Error())
}

// remedy says what helps against an error of AWS.
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

// isThrottled says that AWS asks us to slow down.
func isThrottled(err error) bool { return throttled.IsErrorThrottle(err) == aws.TrueTernary }

// hopeless says that the next request would fail as well: AWS asked us to slow down, or
// nobody waits for it any more.
func hopeless(ctx context.Context, err error) bool {
	return errors.Is(err, balancer.ErrThrottled) || ctx.Err() != nil
}
